"""Boots of one worker that may die in a pass: real processes over one SQLite file, one after the other.

They are forked from a server that has all of it imported, so that a boot costs some hundredths of a second. What a
supervisor and `workers.main` do around a worker (bury the predecessor by its journal, start again) is done here.
"""

import multiprocessing
import os
import resource
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from batchfleet.jobs.job import JobId, NewJob, new_job_id
from batchfleet.jobs.sql.store import SqlStore
from batchfleet.models.repository import ModelRef
from tests.support.models import build_tiny_encoder
from tests.support.pipeline import Pipeline
from tests.support.sessions import StubSession

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.support.boots"])

POISON = 13.0
BOOT_S = 60.0

Behave: TypeAlias = Callable[[list[float]], None]


def exits(values: list[float]) -> None:
    """Ends the process without a word, as a crashing kernel does."""
    if POISON in values:
        os._exit(3)


def hoards(values: list[float]) -> None:
    """Takes memory until a limit of the process's own is met, and then ends as C++ code does that catches nothing."""
    if POISON not in values:
        return
    held = os.sysconf("SC_PAGE_SIZE") * int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (held + (256 << 20), resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    taken = []
    try:
        while True:
            taken.append(bytearray(64 << 20))
    except MemoryError:
        os.abort()


def new_jobs(numbers: Sequence[Sequence[float]]) -> list[NewJob]:
    """Returns one job for each sequence of numbers."""
    return [
        NewJob(
            id=new_job_id(),
            model="tiny",
            version="1",
            inputs=msgspec.json.encode(list(values)),
            item_count=len(values),
            max_attempts=1,
        )
        for values in numbers
    ]


def run_boot(folder: Path, url: str, behave: Behave, jobs: list[JobId]) -> int:
    """Runs one boot until the jobs have ended or it dies; returns the exit code, negative for a signal."""
    model = build_tiny_encoder(folder / "models")
    process = _CONTEXT.Process(target=_boot, args=(folder, url, behave, jobs, model))
    process.start()
    process.join(BOOT_S)
    code = process.exitcode
    if code is None:
        process.kill()
        process.join()
        raise AssertionError("the boot hangs")
    return code


def _boot(folder: Path, url: str, behave: Behave, jobs: list[JobId], model: ModelRef) -> None:
    session = StubSession(behave)
    store = SqlStore(url)
    worker = Pipeline(folder, session, store=store, model=model)
    if (before := worker.journal.predecessor) is not None:
        store.bury(before.boot, before.accused)
    worker.start()
    ended = threading.Event()
    while not all(record.state.terminal for record in worker.records(jobs)):
        ended.wait(0.02)
    worker.close()
    store.close()
