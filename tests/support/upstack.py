"""A whole fleet as a user runs it: `batchfleet up` in a folder of the test's, with a tiny model."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil

from batchfleet.models.config import Limits
from tests.support.models import build_tiny_encoder

READY_S = 60.0
T = TypeVar("T")

SLOW_LIMITS = Limits(max_batch_items=8, max_batch_tokens=4096, max_item_tokens=512)
"""Small batches, so that two thousand jobs take long enough to be killed in."""


def eventually(look: Callable[[], T | None], what: str, within_s: float = 30.0) -> T:
    """Returns what `look` finds as soon as it finds something; a condition of another process has no event."""
    until = time.monotonic() + within_s
    while (found := look()) is None:
        assert time.monotonic() < until, f"not within {within_s:g} s: {what}"
        time.sleep(0.02)
    return found


class UpStack:
    """A running `batchfleet up`."""

    def __init__(self, data_dir: Path, process: "subprocess.Popen[bytes]") -> None:
        self.data_dir = data_dir
        self.process = process
        self.client = httpx.Client(timeout=30.0)

    @property
    def info(self) -> dict[str, Any]:
        """What it says of itself: URL and process ids, as of now."""
        found: dict[str, Any] = json.loads((self.data_dir / "stack.json").read_bytes())
        return found

    @property
    def url(self) -> str:
        """Its address."""
        return str(self.info["url"])

    def pid(self, name: str) -> int:
        """Process id of a child, as of now; while it is being started again, of its next life."""

        def look() -> int | None:
            pid = self.info["pids"].get(name)
            return None if pid is None else int(pid)

        return eventually(look, f"{name} runs")

    def kill(self, name: str) -> None:
        """kill -9 of a child."""
        os.kill(self.pid(name), signal.SIGKILL)

    def request(self, method: str, path: str, **body: Any) -> httpx.Response:
        """Sends a request, again and again while the API is being restarted."""

        def look() -> httpx.Response | None:
            try:
                answer = self.client.request(method, self.url + path, **body)
            except httpx.TransportError:
                return None
            return None if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE else answer

        return eventually(look, f"{method} {path} is answered")

    def submit(self, jobs: list[dict[str, Any]]) -> list[str]:
        """Submits jobs in bulk and returns their ids."""
        answer = self.request("POST", "/v1/jobs/bulk", json=jobs)
        assert answer.status_code == httpx.codes.ACCEPTED, answer.text
        return [entry["id"] for entry in answer.json()["jobs"]]

    def look_up(self, ids: list[str], *, results: bool = False) -> dict[str, dict[str, Any]]:
        """Returns jobs by id."""
        found: dict[str, dict[str, Any]] = {}
        for start in range(0, len(ids), 1000):
            body: dict[str, Any] = {"ids": ids[start : start + 1000]}
            if results:
                body["include"] = ["result"]
            answer = self.request("POST", "/v1/jobs/lookup", json=body)
            assert answer.status_code == httpx.codes.OK, answer.text
            found.update((job["id"], job) for job in answer.json()["jobs"])
        return found

    def states(self, ids: list[str]) -> dict[str, int]:
        """Returns how many of the jobs are in each state."""
        counts: dict[str, int] = {}
        for job in self.look_up(ids).values():
            counts[job["status"]] = counts.get(job["status"], 0) + 1
        return counts

    def finish(self, ids: list[str], within_s: float) -> dict[str, int]:
        """Waits until none of the jobs is queued or running, and returns how many ended how."""

        def look() -> dict[str, int] | None:
            counts = self.states(ids)
            return None if counts.keys() & {"queued", "running"} else counts

        return eventually(look, "all jobs have ended", within_s)

    def stop(self) -> int:
        """Ends it as ctrl-C does; returns its exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)


def processes_of(data_dir: Path) -> list[psutil.Process]:
    """Returns the live processes whose command line or environment names the folder."""
    found = []
    for process in psutil.process_iter():
        try:
            named = str(data_dir) in " ".join(process.cmdline()) or any(
                str(data_dir) in value for key, value in process.environ().items() if key.startswith("BATCHFLEET_")
            )
            if named and process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid():
                found.append(process)
        except psutil.Error:
            continue
    return found


@contextmanager
def running_up(data_dir: Path, *, workers: int = 1, slow: bool = False, model: bool = True) -> Iterator[UpStack]:
    """Runs `batchfleet up` with a tiny model (or none) until the block ends, and leaves nothing behind."""
    repository = data_dir / "models"
    if slow:
        build_tiny_encoder(repository, layers=6, hidden=256, limits=SLOW_LIMITS)
    elif model:
        build_tiny_encoder(repository)
    command = [sys.executable, "-m", "batchfleet.cli", "up", "--data-dir", str(data_dir), "--port", "0"]
    command += ["--workers", str(workers), "--model", "none"]
    with (data_dir / "up.log").open("wb") as log:
        # The variant is fixed: measuring which is faster takes seconds, and other tests do it.
        env = {**os.environ, "BATCHFLEET_WORKER_VARIANT": "fp32"}
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env=env)
    stack = UpStack(data_dir, process)
    try:
        eventually(lambda: _ready(stack), "the fleet is ready", READY_S)
        yield stack
    finally:
        stack.client.close()
        if process.poll() is None:
            stack.stop()
        for left in processes_of(data_dir):
            left.kill()


def _ready(stack: UpStack) -> bool | None:
    assert stack.process.poll() is None, (stack.data_dir / "up.log").read_text()
    ready = (stack.data_dir / "stack.json").exists() and b"ready: " in (stack.data_dir / "up.log").read_bytes()
    return True if ready else None
