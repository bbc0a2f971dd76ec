"""`POST /v1/jobs/bulk` over a socket: each job has its own fate."""

import json
from pathlib import Path
from typing import Any

import pytest

from batchfleet.jobs.job import parse_job_id
from tests.support.apiserver import RunningApi, running_api

JOB: dict[str, Any] = {"model": "tiny", "inputs": ["a text"]}
NDJSON = {"content-type": "application/x-ndjson"}


@pytest.fixture
def api(tmp_path: Path) -> Any:
    with running_api(tmp_path, max_bulk_jobs=10) as running:
        yield running


def test_an_array_of_jobs_is_taken_in_order(api: RunningApi) -> None:
    answer = api.client.post("/v1/jobs/bulk", json=[{**JOB, "inputs": [text]} for text in ("one", "two", "three")])

    jobs = answer.json()["jobs"]
    assert answer.status_code == 202
    assert [job["index"] for job in jobs] == [0, 1, 2]
    assert {job["status"] for job in jobs} == {"queued"}
    assert [api.worker.claim(job["id"]).inputs for job in jobs] == [b'["one"]', b'["two"]', b'["three"]']
    assert {job["lane"] for job in api.client.get("/v1/jobs").json()["jobs"]} == {"bulk"}


@pytest.mark.parametrize("headers", [NDJSON, {"content-type": "application/json"}, {}])
def test_lines_are_taken_by_content_type_or_by_their_look(api: RunningApi, headers: dict[str, str]) -> None:
    body = b'\n{"model":"tiny","inputs":["one"]}\r\n\n{"model":"tiny","inputs":["two"]}'
    answer = api.client.post("/v1/jobs/bulk", content=body, headers=headers)

    assert answer.status_code == 202
    assert [job["status"] for job in answer.json()["jobs"]] == ["queued", "queued"]


BAD_ONES: list[tuple[bytes, str, str | None]] = [
    (b'{"model":"nope","inputs":["a"]}', "model_not_found", "model"),
    (b'{"model":"tiny","inputs":["a",5]}', "invalid_request", "inputs[1]"),
    (b'{"model":"tiny","inputs":["a"],"x":1}', "invalid_request", "x"),
    (b'{"model":"tiny","inputs":["a\\u0000"]}', "invalid_request", "inputs[0]"),
    (b'{"model":"tiny","inputs":["a"],"output_uri":"s3://b"}', "invalid_request", "output_uri"),
    (b'{"model":"tiny","inputs":["a"],"idempotency_key":"\\u00e9"}', "invalid_request", "idempotency_key"),
    (b"5", "invalid_request", None),
]
ONLY_IN_LINES: list[tuple[bytes, str, str | None]] = [
    (b'{"model":"tiny"', "malformed_body", None),
    (b'{"model":"tiny","inputs":["\xff"]}', "malformed_body", None),
]


@pytest.mark.parametrize("form", ["array", "lines"])
def test_bad_ones_do_not_cost_good_ones(api: RunningApi, form: str) -> None:
    good = json.dumps(JOB).encode()
    bad = BAD_ONES if form == "array" else [*BAD_ONES[:5], *ONLY_IN_LINES]
    members = [good, *(body for body, _, _ in bad), good]
    body = b"[" + b",".join(members) + b"]" if form == "array" else b"\n".join(members)
    answer = api.client.post("/v1/jobs/bulk", content=body, headers=NDJSON if form == "lines" else {})

    jobs = answer.json()["jobs"]
    assert answer.status_code == 202
    assert (jobs[0]["status"], jobs[-1]["status"]) == ("queued", "queued")
    told = [(job["error"]["code"], job["error"].get("field")) for job in jobs[1:-1]]
    assert told == [(code, field) for _, code, field in bad]
    assert [job["index"] for job in jobs] == list(range(len(members)))
    assert len(api.client.get("/v1/jobs").json()["jobs"]) == 2


def test_keys_are_per_job(api: RunningApi) -> None:
    body = [
        {**JOB, "idempotency_key": "a"},
        {**JOB, "idempotency_key": "b"},
        {**JOB, "idempotency_key": "a"},
        {**JOB, "idempotency_key": "a", "inputs": ["other"]},
    ]
    first = api.client.post("/v1/jobs/bulk", json=body).json()["jobs"]
    second = api.client.post("/v1/jobs/bulk", json=body).json()["jobs"]

    assert first[0]["id"] == first[2]["id"] == second[0]["id"]
    assert first[1]["id"] == second[1]["id"]
    assert [entry.get("replayed") for entry in first] == [None, None, True, None]
    assert [entry.get("replayed") for entry in second] == [True, True, True, None]
    assert first[3]["error"] == {
        "code": "idempotency_conflict",
        "message": "the key was used with another body",
        "field": "idempotency_key",
    }


def test_lines_without_their_ends_are_refused_with_what_to_do(api: RunningApi) -> None:
    """As `curl -d @file` sends them."""
    answer = api.client.post("/v1/jobs/bulk", content=json.dumps(JOB) * 2, headers=NDJSON)

    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_body")
    assert answer.json()["detail"] == "several JSON values on one line: send NDJSON with --data-binary"
    assert api.client.get("/v1/jobs").json()["jobs"] == []


def test_a_key_of_the_whole_request_is_refused(api: RunningApi) -> None:
    answer = api.client.post("/v1/jobs/bulk", json=[JOB], headers={"Idempotency-Key": "k"})

    assert (answer.status_code, answer.json()["field"]) == (400, "Idempotency-Key")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"[", 400, "malformed_body"),
        (b"", 400, "malformed_body"),
        (b"[]", 400, "invalid_request"),
        (b'"text"', 400, "invalid_request"),
        (b"[" * 100_000, 400, "malformed_body"),
        (json.dumps([JOB] * 11).encode(), 413, "too_large"),
    ],
)
def test_a_request_that_is_wrong_as_a_whole_is_refused(api: RunningApi, body: bytes, status: int, code: str) -> None:
    answer = api.client.post("/v1/jobs/bulk", content=body)

    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_a_big_request_goes_in_slices_and_stays_in_order(tmp_path: Path) -> None:
    with running_api(tmp_path) as api:
        body = [{**JOB, "inputs": [f"text {number}"]} for number in range(2_500)]
        jobs = api.client.post("/v1/jobs/bulk", json=body).json()["jobs"]

        assert api.store.transactions == [1000, 1000, 500]
        assert len({job["id"] for job in jobs}) == 2_500
        records = api.store.look_up([parse_job_id(job["id"]) for job in jobs])
        assert len(records) == 2_500
        assert api.worker.claim(jobs[2_499]["id"]).inputs == b'["text 2499"]'


def test_a_member_on_which_the_store_chokes_costs_only_itself(api: RunningApi) -> None:
    api.store.chokes_on = lambda job: b"poison" in job.inputs
    body = [{**JOB, "inputs": [text]} for text in ("a", "b", "poison", "c", "d")]
    jobs = api.client.post("/v1/jobs/bulk", json=body).json()["jobs"]

    assert [job.get("status") for job in jobs] == ["queued", "queued", None, "queued", "queued"]
    assert jobs[2]["error"]["code"] == "internal_error"
    assert "bad member" not in jobs[2]["error"]["message"]  # our insides are not shown
