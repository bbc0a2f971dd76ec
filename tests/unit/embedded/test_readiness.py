"""Ready means that the API says so and our own workers have warmed up."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from batchfleet.embedded.readiness import Readiness
from batchfleet.errors import StoreUnavailableError
from batchfleet.jobs.job import WorkerLease, WorkerState


class Api(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/readyz" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Keeps the test's output clean."""


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Api) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def lease(pid: int, state: WorkerState = WorkerState.READY) -> WorkerLease:
    return WorkerLease(boot=f"boot{pid}", name=f"w{pid}", pid=pid, state=state)


def test_all_workers_are_awaited(url: str) -> None:
    leases = [lease(1), lease(2, WorkerState.STARTING)]
    readiness = Readiness(url, lambda: leases, workers=2)

    assert not readiness.ready([1, 2])
    assert readiness.missing == "1 of 2 worker(s) have reported that they are ready"

    leases[1] = lease(2)
    assert readiness.ready([1, 2])


def test_workers_of_an_earlier_run_do_not_count(url: str) -> None:
    assert not Readiness(url, lambda: [lease(99)], workers=1).ready([1])


def test_one_that_never_gets_ready_does_not_hold_up_the_others_for_ever(url: str) -> None:
    now = [0.0]
    readiness = Readiness(url, lambda: [lease(1)], workers=2, clock=lambda: now[0])

    assert not readiness.ready([1, 2])
    now[0] = 10.0
    assert readiness.ready([1, 2])


def test_without_models_the_api_is_enough(url: str) -> None:
    assert Readiness(url, list, workers=0).ready([])


def test_an_api_that_is_not_ready(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Api, "status", 503)
    readiness = Readiness(url, list, workers=0)

    assert not readiness.ready([])
    assert readiness.missing == "the API is not ready yet"


def test_no_api_and_no_database_are_no_error(url: str) -> None:
    def no_database() -> list[WorkerLease]:
        raise StoreUnavailableError("away")

    assert not Readiness("http://127.0.0.1:1", list, workers=0).ready([])
    readiness = Readiness(url, no_database, workers=1)
    assert not readiness.ready([])
    assert readiness.missing == "the database does not answer yet (away)"
