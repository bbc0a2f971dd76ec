"""The port to the truth about jobs.

Implementations: `batchfleet.jobs.sql` (SQLite and Postgres) and `batchfleet.jobs.memory` (a double for tests);
one contract suite (`tests/contract/test_store_contract.py`) holds both to what is written here.

Whatever ends a job (settle, cancel, expire, rescue, bury, hand-back) writes what it owes (`JobLinks`: a callback, an
output) into the outbox in the same transaction, once per job and kind.

Every method is one transaction, synchronous, and safe to call from any thread. Every change of a job applies
only from the state it expects, and a worker's only with the epoch of its claim. Times inside are the
database's. Each method raises `StoreUnavailableError` when the database cannot be reached; nothing of the call
has then been applied, or (a connection lost at commit) all of it, which each method bears being repeated after.
"""

from collections.abc import Sequence
from typing import Protocol

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
from batchfleet.jobs.states import JobState


class JobStore(Protocol):
    """Everything that the services ask of the database."""

    # -- clients ------------------------------------------------------------------------------------------

    def submit(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        """Inserts jobs, all or none, and answers in order.

        Idempotency keys are inserted first, in key order, in the same transaction. A known key with the same
        fingerprint repeats the first answer (`created=False`); with another one it is a `conflict`, which
        inserts nothing for that job and does not hinder the others. The same holds between two jobs of a call.
        The relay announces a job 2 s from now where `announced_by_submitter`, else at once; never before
        its `run_at`.
        """
        ...

    def look_up(
        self, ids: Sequence[JobId], *, tenant: str | None = None, with_results: bool = False
    ) -> list[JobRecord]:
        """Returns the jobs that exist (for the tenant, if given), in no particular order."""
        ...

    def list_jobs(self, wanted: JobFilter) -> list[JobRecord]:
        """Returns one page of jobs, newest first, without results."""
        ...

    def cancel(self, ids: Sequence[JobId], *, tenant: str | None = None) -> list[tuple[JobId, JobState, bool]]:
        """Cancels queued and running jobs; effective at once, since the epoch is raised.

        Returns:
            (id, state now, whether this call changed it) for each job that exists. Terminal jobs are unchanged.
        """
        ...

    def delete(self, ids: Sequence[JobId], *, tenant: str | None = None) -> list[Deleted]:
        """Removes jobs that have ended: record, inputs, links, result and idempotency key.

        One whose output is still to be written stays (`owed`): it is what the output is made of. A webhook that is
        still owed goes out without the record. Returns one entry for each job that exists (existed).
        """
        ...

    # -- workers ------------------------------------------------------------------------------------------

    def register(self, lease: WorkerLease) -> None:
        """Inserts the boot's heartbeat row; before the boot's first claim."""
        ...

    def heartbeat(self, boot: BootId, state: WorkerState) -> bool:
        """Renews the lease. Returns False if it is gone: the boot was declared dead and must stop."""
        ...

    def retire(self, boot: BootId) -> None:
        """Removes the lease of a boot that has handed back everything."""
        ...

    def claim(self, boot: BootId, ids: Sequence[JobId]) -> list[ClaimedJob]:
        """Takes those of the jobs that are queued, due and not expired: `running`, owner, epoch + 1.

        Claims nothing for a boot without a lease row.
        """
        ...

    def claim_ready(self, boot: BootId, models: Sequence[str], max_items: int) -> list[ClaimedJob]:
        """Takes queued, due jobs of these models (all models if empty) in a fair order, without hints.

        Takes jobs while their items fit into `max_items`, and at least one if any is ready.
        """
        ...

    def settle(self, boot: BootId, rows: Sequence[Settlement], block: bytes) -> SettleOutcome:
        """Writes results and states of jobs that `boot` owns, in one transaction.

        Each result is `block[offset:offset + length]`. `attempts` is raised for `failed` and `queued`.
        Rows whose job is not `running` under this owner and epoch are stale: nothing is written for them.
        """
        ...

    def hand_back(self, boot: BootId, rows: Sequence[HandBack]) -> list[JobId]:
        """Queues claimed jobs again, free of charge. Returns those that changed.

        They are announced at once, or may be claimed, and are announced, after their `delay_s`.
        A job whose time to live is over becomes `expired` instead (and is returned as well).
        """
        ...

    def revoked(self, boot: BootId) -> list[JobId]:
        """Returns jobs that were cancelled under the boot since the last call; each once."""
        ...

    # -- the scheduler's loops ----------------------------------------------------------------------------

    def due(self, lease_ttl_s: float) -> DueWork:
        """Says, in one cheap read, which of the next three have something to do."""
        ...

    def announceable(self, limit: int, *, skip: Sequence[tuple[str, Lane]] = ()) -> list[Announcement]:
        """Takes due, queued, unannounced jobs in a fair order and moves their `announce_at` on, with backoff.

        Jobs of a (model, lane) in `skip` are left as they are: their flow has hints enough in the broker.
        """
        ...

    def expire(self, limit: int) -> list[JobId]:
        """Ends queued jobs whose time to live is over."""
        ...

    def rescue(self, lease_ttl_s: float, limit: int) -> RescueOutcome:
        """Takes the running jobs of dead boots (no lease, or one older than the TTL) and of wedged runs.

        A dead boot's jobs are judged by `retry.after_crash` without a journal; a run past its timeout counts
        as an attempt (`run_timeout`). The dead leases are removed once no job of theirs is left.
        """
        ...

    def bury(self, boot: BootId, in_pass: Sequence[JobId]) -> RescueOutcome:
        """Declares a boot dead whose journal is at hand: removes its lease and requeues all its jobs.

        Those in the pass are judged by `retry.after_crash(in_pass=True)`, the others come back free.
        Idempotent: a boot that owns nothing any more changes nothing.
        """
        ...

    # -- retention ----------------------------------------------------------------------------------------

    def purge_results(self, older_than_s: float, limit: int) -> list[tuple[JobId, str | None]]:
        """Removes the results of jobs that ended longer ago, oldest first; returns them and their blobs' keys.

        Results whose output is still owed (a pending delivery) stay.
        """
        ...

    def purge_jobs(self, older_than_s: float, limit: int) -> list[tuple[JobId, str | None]]:
        """Removes jobs that ended longer ago, oldest first; returns them and their blobs' keys.

        Those of which anything is still owed (a pending delivery) stay.
        """
        ...

    def named_blobs(self, keys: Sequence[str]) -> set[str]:
        """Returns those of the result blobs' keys (`<job>/<epoch>`) that are needed.

        A result row names them, or their job runs (or may be settled still) under that epoch.
        """
        ...

    # -- observation --------------------------------------------------------------------------------------

    def workers(self) -> list[WorkerLease]:
        """Returns all leases, with their ages."""
        ...

    def queue_depths(self) -> list[QueueDepth]:
        """Counts the queued and running jobs by model and lane."""
        ...

    def ping(self) -> None:
        """Returns if the database answers and has a schema that this code can work with; costs one small read."""
        ...

    def close(self) -> None:
        """Gives up connections; the store is not used afterwards."""
        ...
