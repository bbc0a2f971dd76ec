"""What breaks around the API: broker, database, a bad neighbour, and bytes that no one should send."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchfleet.broker.kombu_broker import KombuBroker
from batchfleet.broker.redis_ring import RedisRing
from batchfleet.telemetry import Metrics
from tests.support.apiserver import WAIT_S, RunningApi, running_api
from tests.support.servers import ValkeyServer

JOB: dict[str, Any] = {"model": "tiny", "inputs": ["a text"]}
UNKNOWN = "job_" + "0" * 32


def test_a_broker_that_is_down_costs_nobody_a_job(tmp_path: Path) -> None:
    with running_api(tmp_path) as api:
        api.hub.down = True

        assert api.client.post("/v1/jobs", json=JOB).status_code == 202
        assert api.client.post("/v1/jobs/bulk", json=[JOB]).json()["jobs"][0]["status"] == "queued"


def test_a_valkey_that_is_killed_costs_nobody_a_job(tmp_path: Path, own_valkey: ValkeyServer) -> None:
    url = own_valkey.url
    ring = RedisRing(url, metrics=Metrics())
    with running_api(tmp_path, broker=KombuBroker(url, metrics=Metrics()), ring=ring) as api:
        before = api.client.post("/v1/jobs", json=JOB)
        own_valkey.kill()
        after = api.client.post("/v1/jobs", json=JOB)
        cancelled = api.client.post(f"/v1/jobs/{after.json()['id']}/cancel")

        assert [before.status_code, after.status_code, cancelled.status_code] == [202, 202, 200]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/jobs", JOB),
        ("POST", "/v1/jobs?wait=5", JOB),
        ("POST", "/v1/jobs/bulk", [JOB]),
        ("GET", f"/v1/jobs/{UNKNOWN}", None),
        ("GET", f"/v1/jobs/{UNKNOWN}?wait=5", None),
        ("GET", f"/v1/jobs/{UNKNOWN}/result", None),
        ("POST", f"/v1/jobs/{UNKNOWN}/cancel", None),
        ("POST", "/v1/jobs/lookup", {"ids": [UNKNOWN]}),
        ("GET", "/v1/jobs", None),
    ],
)
def test_a_database_that_is_down_is_503_everywhere(shared: RunningApi, method: str, path: str, body: Any) -> None:
    shared.store.down = True
    try:
        answer = shared.client.request(method, path, json=body)
    finally:
        shared.store.down = False

    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
    assert int(answer.headers["retry-after"]) >= 1
    assert len(shared.api.services.waiters) == 0


def test_models_are_still_listed_without_the_database(tmp_path: Path) -> None:
    with running_api(tmp_path) as api:
        api.store.down = True
        (model,) = api.client.get("/v1/models").json()["data"]

        assert model["live_workers"] is None


def test_a_database_that_comes_back_is_used_again(tmp_path: Path) -> None:
    with running_api(tmp_path) as api:
        api.store.down = True
        down = api.client.post("/v1/jobs", json=JOB)
        api.store.down = False

        assert [down.status_code, api.client.post("/v1/jobs", json=JOB).status_code] == [503, 202]


def test_a_client_that_hangs_up_in_its_body_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with running_api(tmp_path) as api:
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", api.port)) as client:
                client.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")

        assert api.client.post("/v1/jobs", json=JOB).status_code == 202
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_nobody_pays_for_a_neighbour(tmp_path: Path) -> None:
    with running_api(tmp_path) as api, ThreadPoolExecutor(16) as pool:
        api.store.chokes_on = lambda job: b"poison" in job.inputs
        texts = ["poison" if number % 5 == 0 else f"text {number}" for number in range(40)]

        def submit(text: str) -> int:
            return httpx.post(f"{api.url}/v1/jobs", json={**JOB, "inputs": [text]}, timeout=WAIT_S).status_code

        statuses = list(pool.map(submit, texts))

        assert statuses == [500 if text == "poison" else 202 for text in texts]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with running_api(tmp_path_factory.mktemp("faults")) as running:
        yield running


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
_fields = st.sampled_from(
    [
        "model", "inputs", "version", "parameters", "lane", "run_at", "ttl_s", "on_item_error", "metadata",
        "run_timeout_s", "max_attempts", "adapter", "input_uri", "output_uri", "callback_url", "idempotency_key",
    ]
)  # fmt: skip
FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(body=st.binary(max_size=300), path=st.sampled_from(["/v1/jobs", "/v1/jobs/bulk", "/v1/jobs/lookup"]))
def test_no_bytes_are_our_fault(shared: RunningApi, body: bytes, path: str) -> None:
    assert shared.client.post(path, content=body).status_code < 500


@FUZZ
@given(changes=st.dictionaries(_fields, _json, max_size=4), bulk=st.booleans())
def test_no_values_are_our_fault(shared: RunningApi, changes: dict[str, Any], bulk: bool) -> None:
    job = {**JOB, **changes}
    body = json.dumps([job] if bulk else job).encode("utf-8", "surrogatepass")
    answer = shared.client.post("/v1/jobs/bulk" if bulk else "/v1/jobs", content=body)

    assert answer.status_code < 500
    assert "internal_error" not in answer.text


@FUZZ
@given(text=st.text(st.characters(codec="utf-8"), max_size=40), metadata=st.dictionaries(st.text(max_size=8), _json))
def test_what_is_taken_comes_back_as_it_was(shared: RunningApi, text: str, metadata: dict[str, Any]) -> None:
    body = json.dumps({**JOB, "inputs": [text], "metadata": metadata}).encode("utf-8", "surrogatepass")
    answer = shared.client.post("/v1/jobs", content=body)

    assert answer.status_code < 500
    if answer.status_code == 202:
        shown = shared.client.get(f"/v1/jobs/{answer.json()['id']}").json()["metadata"]
        assert json.loads(shared.worker.claim(answer.json()["id"]).inputs) == [text]
        assert shown == json.loads(json.dumps(metadata))


@FUZZ
@given(path=st.text(max_size=40), query=st.text(max_size=40), method=st.sampled_from(["GET", "POST", "DELETE"]))
def test_no_address_is_our_fault(shared: RunningApi, path: str, query: str, method: str) -> None:

    url = f"/v1/{quote(path.encode('utf-8', 'surrogatepass'))}?{quote(query.encode('utf-8', 'surrogatepass'))}"
    assert shared.client.request(method, url).status_code < 500


def test_a_client_that_stalls_is_answered_408_and_its_connection_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.bodies.SILENCE_S", 0.01)
    with running_api(tmp_path) as api, socket.create_connection(("127.0.0.1", api.port), WAIT_S) as client:
        client.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        answer = b""
        while received := client.recv(65536):  # until it is closed
            answer += received

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"body_timeout"' in answer
