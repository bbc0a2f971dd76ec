"""One worker process as it dies and comes back: what its jobs are charged, and what it may not do."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from batchfleet.settings import EXIT_CONFIG
from tests.support.models import tiny_text
from tests.support.upstack import UpStack, eventually, running_up
from workers.journal import Entry, read_journal

LONG = tiny_text(500)
"""One pass of it takes long enough to be caught in."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpStack]:
    with running_up(tmp_path_factory.mktemp("fleet"), workers=1, slow=True) as running:
        yield running


def journal_of(stack: UpStack) -> Path:
    (path,) = (stack.data_dir / "state" / "journals").glob("*.journal")
    return path


def kill_in_pass(stack: UpStack, job: str, *, but_not: str = "") -> Entry:
    """Kills the worker at a moment at which its journal names the job; returns what the journal said.

    Args:
        but_not: A boot that is dead already; its journal lies there until the next boot takes it over.
    """

    def look() -> Entry | None:
        entry = read_journal(journal_of(stack))
        pid = stack.info["pids"].get("worker-0")
        if entry is None or pid is None or entry.boot == but_not or job.removeprefix("job_") not in entry.jobs:
            return None
        os.kill(pid, signal.SIGKILL)
        return entry

    return eventually(look, "the job is on the device", 60)


@pytest.mark.timeout(180)
def test_a_job_that_its_worker_dies_with_twice_is_convicted_and_its_neighbours_are_not(stack: UpStack) -> None:
    """B11, Q16: suspects rerun alone; the second crash is a conviction; good ones are charged one crash at most."""
    jobs = stack.submit([{"model": "tiny", "inputs": [LONG] * 8}, *({"model": "tiny", "inputs": [LONG]} for _ in "ab")])
    poison, *good = jobs

    together = kill_in_pass(stack, poison)
    eventually(lambda: stack.look_up([poison])[poison]["crashes"] == 1 or None, "the first crash is counted", 60)
    alone = kill_in_pass(stack, poison, but_not=together.boot)

    assert alone.jobs == (poison.removeprefix("job_"),)
    assert stack.finish(jobs, 60) == {"failed": 1, "succeeded": 2}
    found = stack.look_up(jobs)
    assert found[poison]["error"]["code"] == "worker_crashed"
    assert found[poison]["crashes"] == 2
    assert all(found[job]["crashes"] <= 1 and found[job]["attempts"] == 0 for job in good)


@pytest.mark.timeout(120)
def test_a_worker_that_was_declared_dead_ends_and_starts_afresh(stack: UpStack) -> None:
    """Its lease row is gone: whatever it holds is somebody else's by now."""
    database = sqlite3.connect(stack.data_dir / "batchfleet.db", isolation_level=None, timeout=20)
    # It may be starting just now: only a lease of a worker that is ready is worth losing.
    find = "SELECT pid FROM workers WHERE state = 'ready'"
    (before,) = eventually(lambda: database.execute(find).fetchone(), "the worker is ready", 60)
    database.execute("DELETE FROM workers")
    database.close()

    eventually(lambda: stack.pid("worker-0") != before or None, "the worker was started again", 60)

    jobs = stack.submit([{"model": "tiny", "inputs": ["sun"]}])
    assert stack.finish(jobs, 60) == {"succeeded": 1}


@pytest.mark.timeout(120)
def test_a_worker_whose_keeper_dies_starts_afresh(stack: UpStack) -> None:
    """Nothing would renew its lease: it must not idle for ever behind its own fence."""
    jobs = stack.submit([{"model": "tiny", "inputs": ["sun"]}])
    assert stack.finish(jobs, 60) == {"succeeded": 1}
    worker = psutil.Process(stack.pid("worker-0"))
    (keeper,) = worker.children()

    keeper.kill()

    eventually(lambda: stack.pid("worker-0") != worker.pid or None, "the worker was started again", 60)
    jobs = stack.submit([{"model": "tiny", "inputs": ["moon"]}])
    assert stack.finish(jobs, 60) == {"succeeded": 1}


@pytest.mark.timeout(60)
def test_two_live_workers_cannot_share_a_name(stack: UpStack) -> None:
    """Q19: equal names would let one worker's journal speak for another."""
    (name,) = {path.stem for path in (stack.data_dir / "state" / "journals").glob("*.journal")}
    env = dict(os.environ)
    env |= {
        "BATCHFLEET_WORKER_NAME": name,
        "BATCHFLEET_STATE_DIR": str(stack.data_dir / "state"),
        "BATCHFLEET_DATABASE_URL": f"sqlite:///{stack.data_dir / 'batchfleet.db'}",
        "BATCHFLEET_MODELS_URL": (stack.data_dir / "models").as_uri(),
        "BATCHFLEET_BLOB_URL": (stack.data_dir / "blobs").as_uri(),
    }

    second = subprocess.run(
        [sys.executable, "-m", "workers"], env=env, capture_output=True, text=True, timeout=50, check=False
    )

    assert second.returncode == EXIT_CONFIG
    assert "under this name" in second.stderr
