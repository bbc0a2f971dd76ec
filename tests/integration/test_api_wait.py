"""Long polls: woken by the ring, released at the end, leaving nothing behind."""

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from batchfleet.broker.redis_ring import RedisRing
from batchfleet.telemetry import Metrics
from tests.support.apiserver import WAIT_S, running_api
from tests.support.servers import ValkeyServer

JOB = {"model": "tiny", "inputs": ["a text"]}


def test_a_long_poll_is_woken_by_the_ring(tmp_path: Path) -> None:
    """The safety net looks once an hour here: only the ring can end the wait."""
    with running_api(tmp_path) as api, ThreadPoolExecutor(1) as pool:
        job_id = api.submit()
        waiting = pool.submit(api.client.get, f"/v1/jobs/{job_id}?wait=60")
        api.await_waiting()
        api.worker.succeed(job_id)

        answer = waiting.result(WAIT_S)

        assert answer.status_code == 200
        assert answer.json()["status"] == "succeeded"
        assert answer.json()["result"] == {"values": [[0.0, 1.0, 2.0]]}
        assert api.idle.wait(WAIT_S)


def test_a_submission_that_waits_gets_the_finished_job(tmp_path: Path) -> None:
    with running_api(tmp_path) as api, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(api.client.post, "/v1/jobs?wait=60", json=JOB)
        api.await_waiting()
        (listed,) = api.client.get("/v1/jobs").json()["jobs"]
        api.worker.succeed(listed["id"])

        answer = waiting.result(WAIT_S)

        assert answer.status_code == 200
        assert "idempotency-replayed" not in answer.headers
        assert answer.json()["id"] == listed["id"]
        assert answer.json()["lane"] == "online"
        assert answer.json()["result"] == {"values": [[0.0, 1.0, 2.0]]}


def test_a_submission_that_waits_in_vain_is_accepted(tmp_path: Path) -> None:
    with running_api(tmp_path) as api:
        answer = api.client.post("/v1/jobs?wait=0.01", json=JOB)

        assert answer.status_code == 202
        assert answer.json()["status"] == "queued"
        assert answer.headers["location"] == f"/v1/jobs/{answer.json()['id']}"
        assert answer.headers["retry-after"] == "1"


def test_one_ring_wakes_many(tmp_path: Path) -> None:
    with running_api(tmp_path) as api, ThreadPoolExecutor(8) as pool:
        job_id = api.submit()
        waiting = [pool.submit(httpx.get, f"{api.url}/v1/jobs/{job_id}?wait=60", timeout=WAIT_S) for _ in range(8)]
        api.await_waiting()
        api.worker.succeed(job_id)

        assert {one.result(WAIT_S).json()["status"] for one in waiting} == {"succeeded"}
        assert api.idle.wait(WAIT_S)


def test_the_safety_net_finds_what_no_ring_told(tmp_path: Path) -> None:
    with running_api(tmp_path, ring_lookup_s=0.05) as api, ThreadPoolExecutor(1) as pool:
        job_id = api.submit()
        waiting = pool.submit(api.client.get, f"/v1/jobs/{job_id}?wait=60")
        api.await_waiting()
        api.worker.succeed(job_id, ring=False)

        assert waiting.result(WAIT_S).json()["status"] == "succeeded"


def test_cancelling_wakes_who_waits(tmp_path: Path) -> None:
    with running_api(tmp_path) as api, ThreadPoolExecutor(1) as pool:
        job_id = api.submit()
        waiting = pool.submit(api.client.get, f"/v1/jobs/{job_id}?wait=60")
        api.await_waiting()
        httpx.post(f"{api.url}/v1/jobs/{job_id}/cancel")

        assert waiting.result(WAIT_S).json()["status"] == "cancelled"


def test_a_client_that_hangs_up_leaves_no_waiter(tmp_path: Path) -> None:
    with running_api(tmp_path) as api:
        job_id = api.submit()
        with socket.create_connection(("127.0.0.1", api.port)) as client:
            client.sendall(f"GET /v1/jobs/{job_id}?wait=60 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            api.await_waiting()
            assert len(api.api.services.waiters) == 1

        assert api.idle.wait(WAIT_S)
        assert len(api.api.services.waiters) == 0


def test_a_stop_answers_long_polls_with_the_present_state(tmp_path: Path) -> None:
    with running_api(tmp_path) as api, ThreadPoolExecutor(1) as pool:
        job_id = api.submit()
        waiting = pool.submit(api.client.get, f"/v1/jobs/{job_id}?wait=60")
        api.await_waiting()
        api.server.should_exit = True

        answer = waiting.result(WAIT_S)

        assert answer.status_code == 200
        assert answer.json()["status"] == "queued"


def test_a_repeated_key_waits_for_the_first_job(tmp_path: Path) -> None:
    with running_api(tmp_path) as api, ThreadPoolExecutor(1) as pool:
        key = {"Idempotency-Key": "once"}
        first = api.client.post("/v1/jobs", json=JOB, headers=key).json()["id"]
        waiting = pool.submit(api.client.post, "/v1/jobs?wait=60", json=JOB, headers=key)
        api.await_waiting()
        api.worker.succeed(first)

        answer = waiting.result(WAIT_S)

        assert answer.status_code == 200
        assert answer.headers["idempotency-replayed"] == "true"
        assert answer.json()["id"] == first


@pytest.mark.parametrize("over_socket", [True, False])
def test_a_ring_reaches_other_processes_through_valkey(tmp_path: Path, valkey: ValkeyServer, over_socket: bool) -> None:
    url = valkey.socket_url if over_socket else valkey.url
    heard, rung = RedisRing(url, metrics=Metrics()), RedisRing(url, metrics=Metrics())
    with running_api(tmp_path, ring=heard) as api, ThreadPoolExecutor(1) as pool:
        assert heard.subscribed.wait(WAIT_S)
        job_id = api.submit()
        waiting = pool.submit(api.client.get, f"/v1/jobs/{job_id}?wait=60")
        api.await_waiting()
        api.worker.succeed(job_id, ring=False)
        rung.ring([job_id.removeprefix("job_")])

        assert waiting.result(WAIT_S).json()["status"] == "succeeded"
    rung.close()
