"""The job store over a database: each method one transaction, made of one operation module's function."""

import random
from collections.abc import Callable, Sequence

from batchfleet.clock import Wall, wall
from batchfleet.database.opening import open_database
from batchfleet.database.schema import require_schema
from batchfleet.database.transaction import DuplicateRowError
from batchfleet.jobs.job import (
    Announcement,
    BootId,
    ClaimedJob,
    Deleted,
    DueWork,
    HandBack,
    JobFilter,
    JobId,
    JobRecord,
    Lane,
    NewJob,
    QueueDepth,
    RescueOutcome,
    Settlement,
    SettleOutcome,
    Submitted,
    WorkerLease,
    WorkerState,
)
from batchfleet.jobs.sql import cancel, claim, due, leases, lookup, observe, relay, rescue, retention, settle, submit
from batchfleet.jobs.states import JobState
from batchfleet.jobs.verdict import check_settlements


class SqlStore:
    """A `JobStore` over SQLite or Postgres; `migrations.upgrade` must have been run.

    Args:
        database_url: `sqlite:///path` or `postgresql+psycopg://…`. Nothing is opened before the first call, so
            that the store may be made before a fork.
        clock: The time on SQLite; Postgres has its own.
        chance: Numbers in [0, 1), for the jitter of retries and the phases of a fair order.
    """

    def __init__(self, database_url: str, *, clock: Wall = wall, chance: Callable[[], float] = random.random) -> None:
        self._database = open_database(database_url, clock)
        self._chance = chance

    def submit(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        """Inserts jobs, all or none, and answers in order."""
        if not jobs:
            return []
        try:
            return self._database.write(lambda tx: submit.submit(tx, jobs))
        except DuplicateRowError:
            return self._database.write(lambda tx: submit.submit(tx, jobs, repeated=True))

    def look_up(
        self, ids: Sequence[JobId], *, tenant: str | None = None, with_results: bool = False
    ) -> list[JobRecord]:
        """Returns the jobs that exist (for the tenant, if given)."""
        if not ids:
            return []
        return self._database.read(lambda tx: lookup.look_up(tx, ids, tenant, with_results=with_results))

    def list_jobs(self, wanted: JobFilter) -> list[JobRecord]:
        """Returns one page of jobs, newest first, without results."""
        return self._database.read(lambda tx: lookup.list_jobs(tx, wanted))

    def cancel(self, ids: Sequence[JobId], *, tenant: str | None = None) -> list[tuple[JobId, JobState, bool]]:
        """Cancels queued and running jobs."""
        if not ids:
            return []
        return self._database.write(lambda tx: cancel.cancel(tx, ids, tenant))

    def delete(self, ids: Sequence[JobId], *, tenant: str | None = None) -> list[Deleted]:
        """Removes jobs that have ended."""
        if not ids:
            return []
        return self._database.write(lambda tx: retention.delete(tx, ids, tenant))

    def register(self, lease: WorkerLease) -> None:
        """Inserts the boot's heartbeat row."""
        self._database.write(lambda tx: leases.register(tx, lease))

    def heartbeat(self, boot: BootId, state: WorkerState) -> bool:
        """Renews the lease; False if it is gone."""
        return self._database.write(lambda tx: leases.heartbeat(tx, boot, state))

    def retire(self, boot: BootId) -> None:
        """Removes the lease."""
        self._database.write(lambda tx: leases.retire(tx, boot))

    def claim(self, boot: BootId, ids: Sequence[JobId]) -> list[ClaimedJob]:
        """Takes those of the jobs that are queued, due and not expired, in the order of `ids`."""
        if not ids:
            return []
        return self._database.write(lambda tx: claim.claim(tx, boot, ids), durable=False)

    def claim_ready(self, boot: BootId, models: Sequence[str], max_items: int) -> list[ClaimedJob]:
        """Takes queued, due jobs of these models in a fair order."""
        return claim.claim_ready(self._database, boot, models, max_items, self._phase)

    def settle(self, boot: BootId, rows: Sequence[Settlement], block: bytes) -> SettleOutcome:
        """Writes results and states of jobs that `boot` owns."""
        check_settlements(rows, block)
        if not rows:
            return SettleOutcome()
        return self._database.write(lambda tx: settle.settle(tx, boot, rows, block))

    def hand_back(self, boot: BootId, rows: Sequence[HandBack]) -> list[JobId]:
        """Queues claimed jobs again, free of charge."""
        if not rows:
            return []
        return self._database.write(lambda tx: settle.hand_back(tx, boot, rows))

    def revoked(self, boot: BootId) -> list[JobId]:
        """Returns jobs that were cancelled under the boot since the last call; each once."""
        if not self._database.read(lambda tx: cancel.any_revoked(tx, boot)):
            return []
        return self._database.write(lambda tx: cancel.revoked(tx, boot))

    def due(self, lease_ttl_s: float) -> DueWork:
        """Says which of the scheduler's steps have something to do."""
        return self._database.read(lambda tx: due.due(tx, lease_ttl_s))

    def announceable(self, limit: int, *, skip: Sequence[tuple[str, Lane]] = ()) -> list[Announcement]:
        """Takes due jobs in a fair order and moves their `announce_at` on."""
        return self._database.write(lambda tx: relay.announceable(tx, limit, frozenset(skip), self._phase))

    def expire(self, limit: int) -> list[JobId]:
        """Ends queued jobs whose time to live is over."""
        return self._database.write(lambda tx: relay.expire(tx, limit))

    def rescue(self, lease_ttl_s: float, limit: int) -> RescueOutcome:
        """Takes the running jobs of dead boots and of wedged runs."""
        return self._database.write(lambda tx: rescue.rescue(tx, lease_ttl_s, limit, self._chance))

    def bury(self, boot: BootId, in_pass: Sequence[JobId]) -> RescueOutcome:
        """Declares a boot dead whose journal is at hand."""
        return self._database.write(lambda tx: rescue.bury(tx, boot, in_pass))

    def purge_results(self, older_than_s: float, limit: int) -> list[tuple[JobId, str | None]]:
        """Removes the results of jobs that ended longer ago, oldest first."""
        return self._database.write(lambda tx: retention.purge_results(tx, older_than_s, limit))

    def purge_jobs(self, older_than_s: float, limit: int) -> list[tuple[JobId, str | None]]:
        """Removes jobs that ended longer ago, oldest first."""
        return self._database.write(lambda tx: retention.purge_jobs(tx, older_than_s, limit))

    def named_blobs(self, keys: Sequence[str]) -> set[str]:
        """Returns those of the result blobs' keys that are needed."""
        if not keys:
            return set()
        return self._database.read(lambda tx: retention.named_blobs(tx, keys))

    def workers(self) -> list[WorkerLease]:
        """Returns all leases, with their ages."""
        return self._database.read(leases.workers)

    def queue_depths(self) -> list[QueueDepth]:
        """Counts the queued and running jobs by model and lane."""
        return self._database.read(observe.queue_depths)

    def ping(self) -> None:
        """Returns if the database answers and has a schema that this code can work with."""
        self._database.read(require_schema)

    def close(self) -> None:
        """Gives up connections; the store is not used afterwards."""
        self._database.close()

    def _phase(self) -> float:
        return 1.0 - self._chance()
