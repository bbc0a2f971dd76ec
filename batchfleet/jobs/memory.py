"""The job store in memory: a double for tests, held to the same contract suite as the database.

It decides with the same pure functions (`retry` through `verdict`, `fairness`), so that only storing is done
twice. One lock, plain dictionaries, nothing shared between processes.
"""

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from batchfleet.clock import Wall, wall
from batchfleet.jobs import memory_loops, memory_retention
from batchfleet.jobs.debts import Debt
from batchfleet.jobs.fairness import fair_order
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
from batchfleet.jobs.memory_row import (
    candidates,
    claim,
    matches,
    new_row,
    requeue,
    running_job,
    settle,
)
from batchfleet.jobs.memory_tables import MemoryLease, MemoryTables
from batchfleet.jobs.states import JobState
from batchfleet.jobs.verdict import after_death, check_settlements


class MemoryStore:
    """A `JobStore` without a database.

    Args:
        clock: The time.
        chance: Numbers in [0, 1), for the jitter of retries and the phases of a fair order.
    """

    def __init__(self, clock: Wall = wall, *, chance: Callable[[], float] = random.random) -> None:
        self._clock = clock
        self._chance = chance
        self._lock = threading.RLock()
        self._tables = MemoryTables()

    # -- clients ------------------------------------------------------------------------------------------

    def submit(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        """Inserts jobs, all or none, and answers in order."""
        with self._lock:
            now = self._clock()
            return [self._submit(job, now) for job in jobs]

    def _submit(self, job: NewJob, now: float) -> Submitted:
        if job.idempotency_key is not None:
            holder, fingerprint = self._tables.keys.setdefault(
                (job.tenant, job.idempotency_key), (job.id, job.fingerprint)
            )
            if holder != job.id:
                conflict = fingerprint != job.fingerprint
                return Submitted(holder, self._tables.rows[holder].state, created=False, conflict=conflict)
        if job.id not in self._tables.rows:
            self._tables.rows[job.id] = new_row(job, now)
        return Submitted(job.id, self._tables.rows[job.id].state)

    def look_up(
        self, ids: Sequence[JobId], *, tenant: str | None = None, with_results: bool = False
    ) -> list[JobRecord]:
        """Returns the jobs that exist (for the tenant, if given)."""
        with self._lock:
            records = [row.record for row in self._tables.known(ids, tenant)]
        return records if with_results else [replace(record, result=None) for record in records]

    def list_jobs(self, wanted: JobFilter) -> list[JobRecord]:
        """Returns one page of jobs, newest first, without results."""
        with self._lock:
            newest = sorted(
                (row.record for row in self._tables.rows.values()), key=lambda record: record.id, reverse=True
            )
        page = [replace(record, result=None) for record in newest if matches(record, wanted)]
        return page[: wanted.limit]

    def cancel(self, ids: Sequence[JobId], *, tenant: str | None = None) -> list[tuple[JobId, JobState, bool]]:
        """Cancels queued and running jobs."""
        with self._lock:
            answers = []
            for row in self._tables.known(ids, tenant):
                changed = not row.state.terminal
                if changed:
                    epoch = row.record.epoch + 1
                    now = self._clock()
                    row.change(state=JobState.CANCELLED, epoch=epoch, finished_at=now)
                    self._tables.owe(row, now)
                answers.append((row.record.id, row.state, changed))
            return answers

    def delete(self, ids: Sequence[JobId], *, tenant: str | None = None) -> list[Deleted]:
        """Removes jobs that have ended."""
        with self._lock:
            return memory_retention.delete(self._tables, ids, tenant)

    # -- workers ------------------------------------------------------------------------------------------

    def register(self, lease: WorkerLease) -> None:
        """Inserts the boot's heartbeat row."""
        with self._lock:
            self._tables.leases[lease.boot] = MemoryLease(lease, self._clock())

    def heartbeat(self, boot: BootId, state: WorkerState) -> bool:
        """Renews the lease; False if it is gone."""
        with self._lock:
            held = self._tables.leases.get(boot)
            if held is None:
                return False
            held.lease = replace(held.lease, state=state)
            held.seen_at = self._clock()
            return True

    def retire(self, boot: BootId) -> None:
        """Removes the lease."""
        with self._lock:
            self._tables.retire(boot)

    def claim(self, boot: BootId, ids: Sequence[JobId]) -> list[ClaimedJob]:
        """Takes those of the jobs that are queued, due and not expired, in the order of `ids`."""
        with self._lock:
            if boot not in self._tables.leases:
                return []
            now = self._clock()
            ready = [row for row in self._tables.known(ids, None) if row.startable(now)]
            return [claim(row, boot, now) for row in ready]

    def claim_ready(self, boot: BootId, models: Sequence[str], max_items: int) -> list[ClaimedJob]:
        """Takes queued, due jobs of these models in a fair order."""
        with self._lock:
            now = self._clock()
            ready = [row for row in self._tables.rows.values() if row.startable(now)]
            wanted = [row for row in ready if not models or row.asked.model in models]
            chosen = fair_order(candidates(wanted, now), max_items=max_items, phase=self._phase)
            return self.claim(boot, [candidate.id for candidate in chosen])

    def settle(self, boot: BootId, rows: Sequence[Settlement], block: bytes) -> SettleOutcome:
        """Writes results and states of jobs that `boot` owns."""
        check_settlements(rows, block)
        applied: list[tuple[JobId, JobState]] = []
        stale: list[JobId] = []
        with self._lock:
            now = self._clock()
            for settlement in rows:
                row = self._tables.owned(boot, settlement.id, settlement.epoch)
                if row is None:
                    stale.append(settlement.id)
                else:
                    settle(row, settlement, block, now)
                    self._tables.owe(row, now)
                    applied.append((settlement.id, settlement.state))
        return SettleOutcome(tuple(applied), tuple(stale))

    def hand_back(self, boot: BootId, rows: Sequence[HandBack]) -> list[JobId]:
        """Queues claimed jobs again, free of charge."""
        changed = []
        with self._lock:
            now = self._clock()
            for handed in rows:
                row = self._tables.owned(boot, handed.id, handed.epoch)
                if row is not None:
                    state = JobState.EXPIRED if row.overdue(now) else JobState.QUEUED
                    requeue(row, now, state, delay_s=handed.delay_s)
                    if state is JobState.QUEUED and handed.delay_s > 0:
                        row.change(run_at=now + handed.delay_s)
                    self._tables.owe(row, now)
                    changed.append(handed.id)
        return changed

    def revoked(self, boot: BootId) -> list[JobId]:
        """Returns jobs that were cancelled under the boot since the last call; each once."""
        with self._lock:
            return self._tables.take_revoked(boot)

    # -- the scheduler's loops ----------------------------------------------------------------------------

    def due(self, lease_ttl_s: float) -> DueWork:
        """Says which of the scheduler's steps have something to do."""
        with self._lock:
            return memory_loops.due(self._tables, self._clock(), lease_ttl_s)

    def announceable(self, limit: int, *, skip: Sequence[tuple[str, Lane]] = ()) -> list[Announcement]:
        """Takes due jobs in a fair order and moves their `announce_at` on."""
        with self._lock:
            return memory_loops.announceable(self._tables, self._clock(), limit, skip, self._phase)

    def expire(self, limit: int) -> list[JobId]:
        """Ends queued jobs whose time to live is over."""
        with self._lock:
            return memory_loops.expire(self._tables, self._clock(), limit)

    def rescue(self, lease_ttl_s: float, limit: int) -> RescueOutcome:
        """Takes the running jobs of dead boots and of wedged runs."""
        with self._lock:
            now = self._clock()
            verdicts = list(memory_loops.verdicts(self._tables, now, now - lease_ttl_s, limit, self._chance))
            requeued, ended = self._tables.apply(verdicts, now)
            silent = self._tables.silent(now - lease_ttl_s)
            dead = [boot for boot in silent if not self._tables.running_of(boot) and self._tables.retire(boot)]
            return RescueOutcome(requeued, ended, tuple(dead))

    def bury(self, boot: BootId, in_pass: Sequence[JobId]) -> RescueOutcome:
        """Declares a boot dead whose journal is at hand."""
        with self._lock:
            now = self._clock()
            suspects = frozenset(in_pass)
            running = [running_job(row) for row in self._tables.running_of(boot)]
            verdicts = [after_death(job, now, in_pass=job.id in suspects) for job in running]
            requeued, ended = self._tables.apply(verdicts, now)
            return RescueOutcome(requeued, ended, (boot,) if self._tables.retire(boot) else ())

    # -- retention ----------------------------------------------------------------------------------------

    def purge_results(self, older_than_s: float, limit: int) -> list[tuple[JobId, str | None]]:
        """Removes the results of jobs that ended longer ago, oldest first."""
        with self._lock:
            return memory_retention.purge_results(self._tables, self._clock() - older_than_s, limit)

    def purge_jobs(self, older_than_s: float, limit: int) -> list[tuple[JobId, str | None]]:
        """Removes jobs that ended longer ago, oldest first."""
        with self._lock:
            return memory_retention.purge_jobs(self._tables, self._clock() - older_than_s, limit)

    def named_blobs(self, keys: Sequence[str]) -> set[str]:
        """Returns those of the result blobs' keys that are needed."""
        with self._lock:
            return memory_retention.named_blobs(self._tables, keys)

    # -- the outbox, for tests ----------------------------------------------------------------------------

    def debts(self) -> list[Debt]:
        """Returns what the ends of jobs owe."""
        with self._lock:
            return list(self._tables.debts.values())

    def pay_debts(self) -> None:
        """Marks all of it as delivered."""
        with self._lock:
            self._tables.pay()

    # -- observation --------------------------------------------------------------------------------------

    def workers(self) -> list[WorkerLease]:
        """Returns all leases, with their ages."""
        with self._lock:
            now = self._clock()
            return [
                replace(held.lease, heartbeat_age_s=max(0.0, now - held.seen_at))
                for held in self._tables.leases.values()
            ]

    def queue_depths(self) -> list[QueueDepth]:
        """Counts the queued and running jobs by model and lane."""
        with self._lock:
            return memory_loops.queue_depths(self._tables, self._clock())

    def ping(self) -> None:
        """Returns at once."""

    def close(self) -> None:
        """Has nothing to give up."""

    # -- helpers ------------------------------------------------------------------------------------------

    def _phase(self) -> float:
        return 1.0 - self._chance()
