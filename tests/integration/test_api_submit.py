"""`POST /v1/jobs` over a socket: what is taken, what is refused and by which name."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.bodies import NDJSON_TYPES
from api.catalog import FRESH_S
from batchfleet.broker.hint import Flow
from batchfleet.broker.memory import MemoryBroker
from batchfleet.jobs.job import Lane, parse_job_id
from tests.support.apiserver import WAIT_S, RunningApi, publish_model, running_api

JOB: dict[str, Any] = {"model": "tiny", "inputs": ["a text"]}


@pytest.fixture
def api(tmp_path: Path) -> Any:
    with running_api(tmp_path) as running:
        yield running


def test_a_job_is_accepted_with_a_place_to_ask(api: RunningApi) -> None:
    answer = api.client.post("/v1/jobs", json=JOB)

    job = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/v1/jobs/{job['id']}"
    assert answer.headers["retry-after"] == "1"
    assert job == {
        "id": job["id"],
        "status": "queued",
        "model": "tiny",
        "version": "1",
        "lane": "standard",
        "item_count": 1,
        "result_url": f"/v1/jobs/{job['id']}/result",
    }


def test_everything_that_is_stated_reaches_the_store(api: RunningApi) -> None:
    stated = {
        "version": "1",
        "parameters": {"normalize": False},
        "lane": "bulk",
        "ttl_s": 60,
        "on_item_error": "partial",
        "metadata": {"order": 7, "text": "grüße"},
        "run_timeout_s": 5,
        "max_attempts": 2,
    }
    job_id = api.submit(inputs=["one", {"text": "two"}], **stated)
    claimed = api.worker.claim(job_id)

    assert claimed.inputs == b'["one",{"text":"two"}]'
    assert claimed.item_count == 2
    assert claimed.parameters == b'{"normalize":false}'
    assert (claimed.lane, claimed.on_item_error, claimed.max_attempts) == ("bulk", "partial", 2)
    assert claimed.run_timeout_s == 5
    assert claimed.ttl_left_s is not None
    assert api.client.get(f"/v1/jobs/{job_id}").json()["metadata"] == stated["metadata"]


def test_a_job_is_announced_once_it_is_committed(api: RunningApi) -> None:
    job_id = api.submit()

    (hint,) = MemoryBroker(api.hub).pull([Flow("tiny", Lane.STANDARD)], 10, WAIT_S)

    assert hint.ids == (parse_job_id(job_id),)


def test_a_job_for_later_is_not_announced_and_not_claimed(api: RunningApi) -> None:
    later = api.submit(run_at=(datetime.now(UTC) + timedelta(hours=1)).isoformat())
    now = api.submit()

    hints = MemoryBroker(api.hub).pull([Flow("tiny", Lane.STANDARD)], 10, WAIT_S)
    api.worker.register()

    assert [hint.ids for hint in hints] == [(parse_job_id(now),)]
    assert api.store.claim(api.worker.boot, [parse_job_id(later)]) == []


def test_a_new_version_is_pinned_from_when_it_is_seen(tmp_path: Path) -> None:
    with running_api(tmp_path) as api:
        before = api.client.post("/v1/jobs", json=JOB).json()
        publish_model(tmp_path / "models", version="2")
        api.api.services.catalog._fresh_s = 0.0
        api.api.services.catalog._resolved.clear()

        after = api.client.post("/v1/jobs", json=JOB).json()
        pinned = api.client.post("/v1/jobs", json={**JOB, "version": "1"}).json()

        assert [job["version"] for job in (before, after, pinned)] == ["1", "2", "1"]
        assert FRESH_S <= 2.0  # the bound of the contract


@pytest.mark.parametrize(
    ("fields", "status", "code", "field"),
    [
        ({"model": 5}, 400, "invalid_request", "model"),
        ({"model": ""}, 400, "invalid_request", "model"),
        ({"model": "a\u0000b"}, 400, "invalid_request", "model"),
        ({"model": "nope"}, 404, "model_not_found", "model"),
        ({"model": "../tiny"}, 400, "invalid_request", "model"),
        ({"version": "9"}, 404, "model_not_found", "version"),
        ({"inputs": None}, 400, "invalid_request", "inputs"),
        ({"run_at": "2999-01-01T00:00:00Z", "ttl_s": 5}, 400, "invalid_request", "run_at"),
        ({"run_at": (datetime.now(UTC) + timedelta(days=9)).isoformat(), "ttl_s": 5}, 400, "invalid_request", "ttl_s"),
        ({"inputs": []}, 400, "invalid_request", "inputs"),
        ({"inputs": "text"}, 400, "invalid_request", "inputs"),
        ({"inputs": ["a", 5]}, 400, "invalid_request", "inputs[1]"),
        ({"inputs": ["a", {"text": 5}]}, 400, "invalid_request", "inputs[1].text"),
        ({"inputs": ["a", "b\u0000c"]}, 400, "invalid_request", "inputs[1]"),
        ({"inputs": ["a"] * 1025}, 413, "too_large", "inputs"),
        ({"inputs": ["a", "b" * 1001]}, 413, "too_large", "inputs[1]"),
        ({"parameters": {"nope": 1}}, 400, "invalid_request", "parameters.nope"),
        ({"parameters": {"normalize": 1}}, 400, "invalid_request", "parameters.normalize"),
        ({"parameters": []}, 400, "invalid_request", "parameters"),
        ({"lane": "express"}, 400, "invalid_request", "lane"),
        ({"run_at": "tomorrow"}, 400, "invalid_request", "run_at"),
        ({"run_at": "2026-01-01T00:00:00"}, 400, "invalid_request", "run_at"),
        ({"run_at": "9999-01-01T00:00:00Z"}, 400, "invalid_request", "run_at"),
        ({"ttl_s": 0}, 400, "invalid_request", "ttl_s"),
        ({"ttl_s": 1e300}, 400, "invalid_request", "ttl_s"),
        ({"run_timeout_s": -1}, 400, "invalid_request", "run_timeout_s"),
        ({"max_attempts": 0}, 400, "invalid_request", "max_attempts"),
        ({"max_attempts": 1.5}, 400, "invalid_request", "max_attempts"),
        ({"on_item_error": "ignore"}, 400, "invalid_request", "on_item_error"),
        ({"metadata": "text"}, 400, "invalid_request", "metadata"),
        ({"metadata": {"a": "x\u0000"}}, 400, "invalid_request", "metadata.a"),
        ({"metadata": {"a": "x" * 16384}}, 413, "too_large", "metadata"),
        ({"colour": "red"}, 400, "invalid_request", "colour"),
        ({"adapter": "lora"}, 400, "unsupported_field", "adapter"),
    ],
)
def test_what_is_wrong_is_named(shared: RunningApi, fields: Any, status: int, code: str, field: str) -> None:
    answer = shared.client.post("/v1/jobs", json={**JOB, **fields})

    problem = answer.json()
    assert (answer.status_code, problem["code"], problem.get("field")) == (status, code, field)
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["status"] == status
    assert problem["request_id"] == answer.headers["x-request-id"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with running_api(tmp_path_factory.mktemp("shared"), max_item_bytes=1000) as running:
        yield running


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"model":"tiny","inputs":[NaN]}',
        b'{"model":"tiny","inputs":[Infinity]}',
        b'{"model":"tiny","inputs":["\\ud800"]}',
        b'{"model":"tiny","inputs":["\\udc00\\ud800"]}',
        b'{"model":"tiny","inputs":["\xff"]}',
        b'{"model":"tiny","inputs":["a\x00b"]}',
        b'{"model":"tiny","inputs":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"model":"tiny","inputs":["a"]} trailing',
    ],
)
def test_what_is_no_json_is_malformed(shared: RunningApi, body: bytes) -> None:
    answer = shared.client.post("/v1/jobs", content=body)

    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_body")


def test_numbers_out_of_range_are_refused_by_name(shared: RunningApi) -> None:
    answer = shared.client.post("/v1/jobs", content=b'{"model":"tiny","inputs":[1e999]}')

    assert (answer.status_code, answer.json()["field"]) == (400, "inputs[0]")


def test_doubled_keys_are_no_trouble(shared: RunningApi) -> None:
    answer = shared.client.post("/v1/jobs", content=b'{"model":"x","model":"tiny","inputs":["a"]}')

    assert answer.status_code == 202


@pytest.mark.parametrize("wait", ["-1", "61", "nan", "inf", "soon", "", "1_0e"])
def test_a_wait_out_of_range_is_refused(shared: RunningApi, wait: str) -> None:
    answer = shared.client.post(f"/v1/jobs?wait={wait}", json=JOB)

    assert (answer.status_code, answer.json()["field"]) == (400, "wait")


def test_an_unknown_query_parameter_is_refused(shared: RunningApi) -> None:
    answer = shared.client.post("/v1/jobs?wiat=5", json=JOB)

    assert (answer.status_code, answer.json()["field"]) == (400, "wiat")


@pytest.mark.parametrize(
    "stated",
    [
        None,
        "application/json",
        "Application/JSON; charset=utf-8",
        "text/json",
        "application/vnd.api+json",
        "application/x-www-form-urlencoded",
        "text/plain;charset=UTF-8",
    ],
)
def test_json_passes_under_these_content_types(shared: RunningApi, stated: str | None) -> None:
    headers = {} if stated is None else {"content-type": stated}
    answers = [
        shared.client.post("/v1/jobs", content=b'{"model":"tiny","inputs":["a"]}', headers=headers),
        shared.client.post("/v1/jobs/bulk", content=b'[{"model":"tiny","inputs":["a"]}]', headers=headers),
        shared.client.post("/v1/jobs/lookup", content=b'{"ids":[]}', headers=headers),
    ]

    assert [answer.status_code for answer in answers] == [202, 202, 200]


@pytest.mark.parametrize("stated", ["application/xml", "multipart/form-data; boundary=x", "text/csv", "*/*", "json"])
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/bulk", "/v1/jobs/lookup"])
def test_another_content_type_is_refused(shared: RunningApi, path: str, stated: str) -> None:
    answer = shared.client.post(path, json=JOB, headers={"content-type": stated})

    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (415, "unsupported_media_type")
    assert problem["field"] == "Content-Type"


@pytest.mark.parametrize("stated", sorted(NDJSON_TYPES))
def test_lines_are_for_bulk_only(shared: RunningApi, stated: str) -> None:
    headers = {"content-type": stated}
    line = b'{"model":"tiny","inputs":["a"]}'
    statuses = [shared.client.post(path, content=line, headers=headers) for path in ("/v1/jobs/bulk", "/v1/jobs")]

    assert [answer.status_code for answer in statuses] == [202, 415]


@pytest.mark.parametrize("origin", ["https://example.org", "null", "http://127.0.0.1:1"])
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/bulk", "/v1/jobs/lookup", f"/v1/jobs/job_{'0' * 32}/cancel"])
def test_pages_of_other_sites_change_nothing(shared: RunningApi, path: str, origin: str) -> None:
    answer = shared.client.post(path, json=JOB, headers={"Origin": origin})

    assert (answer.status_code, answer.json()["code"]) == (403, "cross_origin")


def test_our_own_pages_may(shared: RunningApi) -> None:
    assert shared.client.post("/v1/jobs", json=JOB, headers={"Origin": shared.url}).status_code == 202


@pytest.mark.parametrize("key", ["", "x" * 256, "tab\there", "caf\xe9"])
def test_a_strange_idempotency_key_is_refused(shared: RunningApi, key: str) -> None:
    answer = shared.client.post("/v1/jobs", json=JOB, headers=[(b"Idempotency-Key", key.encode("latin-1"))])

    assert (answer.status_code, answer.json()["field"]) == (400, "Idempotency-Key")


def test_the_same_key_repeats_the_first_answer(api: RunningApi) -> None:
    key = {"Idempotency-Key": "order 7"}
    first = api.client.post("/v1/jobs", json=JOB, headers=key)
    # Spacing and the order of members are not part of what was asked.
    second = api.client.post("/v1/jobs", content=b'{"inputs": ["a text"], "model": "tiny"}', headers=key)
    other = api.client.post("/v1/jobs", json={**JOB, "inputs": ["another"]}, headers=key)

    assert second.status_code == 202
    assert second.json()["id"] == first.json()["id"]
    assert second.headers["idempotency-replayed"] == "true"
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_conflict")


@pytest.mark.parametrize("query", ["", "?wait=30"])
def test_a_repeated_key_whose_job_has_ended_gets_it_as_it_is(api: RunningApi, query: str) -> None:
    key = {"Idempotency-Key": "order 7"}
    first = api.client.post("/v1/jobs", json=JOB, headers=key)
    api.worker.succeed(first.json()["id"])
    again = api.client.post(f"/v1/jobs{query}", json=JOB, headers=key)

    assert "idempotency-replayed" not in first.headers
    assert again.status_code == 200
    assert again.headers["idempotency-replayed"] == "true"
    assert "retry-after" not in again.headers
    assert (again.json()["id"], again.json()["status"]) == (first.json()["id"], "succeeded")
    assert again.json()["result"] == {"values": [[0.0, 1.0, 2.0]]}


@pytest.mark.parametrize("query", ["", "?wait=0.01"])
def test_a_repeated_key_whose_record_was_removed_is_still_accepted(
    api: RunningApi, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = {"Idempotency-Key": "order 7"}
    first = api.client.post("/v1/jobs", json=JOB, headers=key)
    monkeypatch.setattr(api.store, "look_up", lambda *_, **__: [])
    again = api.client.post(f"/v1/jobs{query}", json=JOB, headers=key)

    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
    assert again.headers["idempotency-replayed"] == "true"


def test_fifty_at_once_with_one_key_are_one_job(api: RunningApi) -> None:
    def submit(_: int) -> str:
        answer = httpx.post(f"{api.url}/v1/jobs", json=JOB, headers={"Idempotency-Key": "k"}, timeout=WAIT_S)
        assert answer.status_code == 202
        job_id: str = answer.json()["id"]
        return job_id

    with ThreadPoolExecutor(50) as pool:
        ids = set(pool.map(submit, range(50)))

    assert len(ids) == 1
    assert len(api.client.get("/v1/jobs").json()["jobs"]) == 1


def test_a_full_queue_refuses_with_a_time_to_come_back(tmp_path: Path) -> None:
    with running_api(tmp_path, max_queued_jobs=2) as api:
        gate = api.api.services.gate._queued
        asyncio.run_coroutine_threadsafe(gate.get(), api.loop).result(WAIT_S)  # the first count has come in
        statuses = [api.client.post("/v1/jobs", json=JOB).status_code for _ in range(3)]
        refused = api.client.post("/v1/jobs/bulk", json=[JOB])

        assert statuses == [202, 202, 429]
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["code"] == "overloaded"


def test_a_body_over_the_limit_is_refused_while_it_arrives(tmp_path: Path) -> None:
    with running_api(tmp_path, max_body_bytes=1000) as api:
        stated = api.client.post("/v1/jobs", json={**JOB, "inputs": ["x" * 1000]})
        streamed = api.client.post("/v1/jobs", content=iter([b'{"model":"' + b"x" * 500] * 3))
        after = api.client.post("/v1/jobs", json=JOB)

        assert (stated.status_code, stated.json()["code"]) == (413, "too_large")
        assert (streamed.status_code, streamed.json()["code"]) == (413, "too_large")
        assert after.status_code == 202


def test_two_idempotency_keys_in_one_request_are_refused(tmp_path: Path) -> None:
    """Which of them would count is anybody's guess: the caller must say."""
    with running_api(tmp_path) as api:
        headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
        answer = httpx.post(api.url + "/v1/jobs", json={"model": "tiny", "inputs": ["sun"]}, headers=headers)

    assert answer.status_code == 400
    assert answer.json()["field"] == "Idempotency-Key"
