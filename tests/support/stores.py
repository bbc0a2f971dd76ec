"""Benches for the job store: every kind of store, with time in the test's hands."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from batchfleet.clock import ManualClock
from batchfleet.jobs.job import (
    BootId,
    ClaimedJob,
    JobId,
    JobRecord,
    NewJob,
    Settlement,
    WorkerLease,
    WorkerState,
    new_job_id,
)
from batchfleet.jobs.memory import MemoryStore
from batchfleet.jobs.sql.store import SqlStore
from batchfleet.jobs.sql.tables import jobs, workers
from batchfleet.jobs.states import JobState
from batchfleet.jobs.store import JobStore
from migrations import upgrade
from migrations.schema import metadata

POSTGRES_URL = os.environ.get("BATCHFLEET_TEST_POSTGRES_URL", "")
"""An empty database of one's own, `postgresql+psycopg://…`; without it the suite runs without Postgres."""

SHARED_KINDS = ("sqlite", "postgres") if POSTGRES_URL else ("sqlite",)
"""Stores that several processes can share."""

KINDS = ("memory", *SHARED_KINDS)

TTL_S = 15.0
"""Lease TTL of the tests."""

_TIMES = ("submitted_at", "expires_at", "run_at", "announce_at", "started_at", "deadline_at", "finished_at")


class Chance:
    """The store's chance, fixed: jitter 0.5 unless told otherwise."""

    value = 0.5

    def __call__(self) -> float:
        return self.value


@dataclass
class Bench:
    """One empty store.

    Attributes:
        url: How another process opens it; empty for the store in memory.
    """

    kind: str
    store: JobStore
    clock: ManualClock
    url: str = ""

    def advance(self, seconds: float) -> None:
        """Moves the store's time on. Postgres keeps its own: there all that is stored moves back instead."""
        self.clock.advance(seconds)
        if self.kind == "postgres":
            _age(self.url, seconds)

    def boot(self, name: str = "worker", models: Sequence[str] = ()) -> BootId:
        """Registers a fresh boot."""
        boot = new_job_id()
        self.store.register(WorkerLease(boot=boot, name=name, pid=1, state=WorkerState.READY, models=tuple(models)))
        return boot

    def submit(self, count: int = 1, **changes: Any) -> list[JobId]:
        """Submits jobs and returns their ids."""
        new = [new_job(**changes) for _ in range(count)]
        self.store.submit(new)
        return [job.id for job in new]

    def running(self, boot: BootId, count: int = 1, **changes: Any) -> list[ClaimedJob]:
        """Submits jobs and claims them."""
        claimed = self.store.claim(boot, self.submit(count, **changes))
        assert len(claimed) == count
        return claimed

    def record(self, job_id: JobId) -> JobRecord:
        """Looks one job up, with its result."""
        (record,) = self.store.look_up([job_id], with_results=True)
        return record

    def states(self, ids: Sequence[JobId]) -> list[JobState]:
        """Returns the states in the order of the ids."""
        found = {record.id: record.state for record in self.store.look_up(ids)}
        return [found[job_id] for job_id in ids]


@contextmanager
def open_bench(kind: str, folder: Path) -> Iterator[Bench]:
    """Opens an empty store of a kind and closes it."""
    clock = ManualClock(1_700_000_000.0)
    chance = Chance()
    if kind == "memory":
        yield Bench(kind, MemoryStore(clock, chance=chance), clock)
        return
    url = POSTGRES_URL if kind == "postgres" else sqlite_url(folder)
    if kind == "postgres":
        _empty(url)
    store = SqlStore(url, clock=clock, chance=chance)
    try:
        yield Bench(kind, store, clock, url)
    finally:
        store.close()


def new_job(**changes: Any) -> NewJob:
    """Returns a small job."""
    fields: dict[str, Any] = {
        "id": new_job_id(),
        "model": "tiny",
        "version": "1",
        "inputs": b'["text"]',
        "item_count": 1,
    }
    return NewJob(**(fields | changes))


def success(claimed: ClaimedJob, **changes: Any) -> Settlement:
    """Returns a settlement as `succeeded`, without bytes."""
    fields: dict[str, Any] = {"state": JobState.SUCCEEDED, "format": "{}"}
    return Settlement(id=claimed.id, epoch=claimed.epoch, **(fields | changes))


def sqlite_url(folder: Path, name: str = "store.db") -> str:
    """Returns the URL of a fresh, migrated SQLite file: a copy, since migrating takes longer than most tests."""
    path = folder / name
    shutil.copy(_template(), path)
    return f"sqlite:///{path}"


@cache
def _template() -> Path:
    path = Path(tempfile.mkdtemp(prefix="batchfleet-template-")) / "empty.db"
    upgrade(f"sqlite:///{path}")
    return path


@cache
def _postgres(url: str) -> sa.Engine:
    upgrade(url)
    return sa.create_engine(url, poolclass=sa.NullPool)


def _empty(url: str) -> None:
    names = ", ".join(table.name for table in metadata.sorted_tables)
    with _postgres(url).begin() as connection:
        connection.execute(sa.text(f"TRUNCATE {names}"))


def _age(url: str, seconds: float) -> None:
    with _postgres(url).begin() as connection:
        connection.execute(sa.update(jobs).values({name: jobs.c[name] - seconds for name in _TIMES}))
        connection.execute(sa.update(workers).values(seen_at=workers.c.seen_at - seconds))
