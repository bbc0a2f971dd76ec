"""Benches for the job store: every kind of store, with time in the test's hands."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from batchfleet.clock import ManualClock
from batchfleet.database.opening import open_database
from batchfleet.database.statements import sql
from batchfleet.database.transaction import Database, Transaction
from batchfleet.jobs.debts import Debt
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
from batchfleet.jobs.states import JobState
from batchfleet.jobs.store import JobStore
from migrations import upgrade
from tests.support.postgres import empty_database, session_connection, session_folder

T = TypeVar("T")

SHARED_KINDS = ("sqlite", "postgres")
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
            _age(seconds)

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

    def owed(self) -> list[Debt]:
        """Returns what is in the outbox, by job and kind."""
        debts = self.store.debts() if isinstance(self.store, MemoryStore) else _with_database(self.url, stored_debts)
        return sorted(debts, key=lambda debt: (debt.job_id, debt.kind))

    def pay(self) -> None:
        """Marks all that is owed as delivered."""
        if isinstance(self.store, MemoryStore):
            self.store.pay_debts()
        else:
            _with_database(self.url, lambda database: database.write(pay_debts))


_DEBTS = sql(
    "SELECT job_id, kind, tenant, target, event, created_at, state FROM outbox WHERE attempts = 0 AND epoch = 0"
    " AND due_at = created_at AND leased_until IS NULL AND finished_at IS NULL"
)
_PAY = sql("UPDATE outbox SET state = 'delivered'")


def stored_debts(database: Database) -> list[Debt]:
    """Returns those rows of the outbox that nobody has tried to deliver."""
    fields = ("job_id", "kind", "tenant", "target", "event", "created_at", "state")
    rows = database.read(lambda tx: tx.rows(_DEBTS, {}))
    return [Debt(**dict(zip(fields, row, strict=True))) for row in rows]


def pay_debts(tx: Transaction) -> None:
    """Marks all that is owed as delivered."""
    tx.change(_PAY, {})


def _with_database(url: str, work: Callable[[Database], T]) -> T:
    database = open_database(url)
    try:
        return work(database)
    finally:
        database.close()


@contextmanager
def open_bench(kind: str, folder: Path) -> Iterator[Bench]:
    """Opens an empty store of a kind and closes it."""
    clock = ManualClock(1_700_000_000.0)
    chance = Chance()
    if kind == "memory":
        yield Bench(kind, MemoryStore(clock, chance=chance), clock)
        return
    url = empty_database() if kind == "postgres" else sqlite_url(folder)
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
    path = session_folder() / "empty.db"
    upgrade(f"sqlite:///{path}")
    return path


def _age(seconds: float) -> None:
    """Moves all stored times of the session's Postgres back."""
    moved = ", ".join(f"{name} = {name} - %(s)s" for name in _TIMES)
    session_connection().execute(f"UPDATE jobs SET {moved}".encode(), {"s": seconds})  # noqa: S608 - names of ours
    session_connection().execute("UPDATE workers SET seen_at = seen_at - %(s)s", {"s": seconds})
    session_connection().execute("UPDATE job_results SET stored_at = stored_at - %(s)s", {"s": seconds})
    debts = ("created_at", "due_at", "leased_until", "finished_at")
    moved = ", ".join(f"{name} = {name} - %(s)s" for name in debts)
    session_connection().execute(f"UPDATE outbox SET {moved}".encode(), {"s": seconds})  # noqa: S608 - names of ours
    session_connection().execute("UPDATE duties SET taken_at = taken_at - %(s)s", {"s": seconds})
    for table in ("device_rates", "pass_costs", "memory_ceilings"):
        moved = f"UPDATE {table} SET updated_at = updated_at - %(s)s"  # noqa: S608 - names of ours
        session_connection().execute(moved.encode(), {"s": seconds})
    secrets = "UPDATE webhook_secrets SET created_at = created_at - %(s)s, expires_at = expires_at - %(s)s"
    session_connection().execute(secrets, {"s": seconds})
