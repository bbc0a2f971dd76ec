"""The job store in memory: a double for tests, held to the same contract suite as the database.

It decides with the same pure functions (`retry` through `verdict`, `fairness`), so that only storing is done
twice. One lock, plain dictionaries, nothing shared between processes.
"""

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from batchfleet.clock import Wall, wall
from batchfleet.jobs.announce import announce_backoff_s
from batchfleet.jobs.fairness import fair_order
from batchfleet.jobs.job import (
    Announcement,
    BootId,
    ClaimedJob,
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
    MemoryRow,
    candidates,
    claim,
    judge,
    matches,
    new_row,
    requeue,
    running_job,
    settle,
)
from batchfleet.jobs.states import JobState
from batchfleet.jobs.verdict import Verdict, after_death, after_timeout, check_settlements


@dataclass(slots=True)
class _Lease:
    lease: WorkerLease
    seen_at: float


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
        self._rows: dict[JobId, MemoryRow] = {}
        self._keys: dict[tuple[str, str], tuple[JobId, str]] = {}
        self._leases: dict[BootId, _Lease] = {}

    # -- clients ------------------------------------------------------------------------------------------

    def submit(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        """Inserts jobs, all or none, and answers in order."""
        with self._lock:
            now = self._clock()
            return [self._submit(job, now) for job in jobs]

    def _submit(self, job: NewJob, now: float) -> Submitted:
        if job.idempotency_key is not None:
            holder, fingerprint = self._keys.setdefault((job.tenant, job.idempotency_key), (job.id, job.fingerprint))
            if holder != job.id:
                conflict = fingerprint != job.fingerprint
                return Submitted(holder, self._rows[holder].state, created=False, conflict=conflict)
        if job.id not in self._rows:
            self._rows[job.id] = new_row(job, now)
        return Submitted(job.id, self._rows[job.id].state)

    def look_up(
        self, ids: Sequence[JobId], *, tenant: str | None = None, with_results: bool = False
    ) -> list[JobRecord]:
        """Returns the jobs that exist (for the tenant, if given)."""
        with self._lock:
            records = [row.record for row in self._known(ids, tenant)]
        return records if with_results else [replace(record, result=None) for record in records]

    def list_jobs(self, wanted: JobFilter) -> list[JobRecord]:
        """Returns one page of jobs, newest first, without results."""
        with self._lock:
            newest = sorted((row.record for row in self._rows.values()), key=lambda record: record.id, reverse=True)
        page = [replace(record, result=None) for record in newest if matches(record, wanted)]
        return page[: wanted.limit]

    def cancel(self, ids: Sequence[JobId], *, tenant: str | None = None) -> list[tuple[JobId, JobState, bool]]:
        """Cancels queued and running jobs."""
        with self._lock:
            answers = []
            for row in self._known(ids, tenant):
                changed = not row.state.terminal
                if changed:
                    epoch = row.record.epoch + 1
                    row.change(state=JobState.CANCELLED, epoch=epoch, finished_at=self._clock())
                answers.append((row.record.id, row.state, changed))
            return answers

    # -- workers ------------------------------------------------------------------------------------------

    def register(self, lease: WorkerLease) -> None:
        """Inserts the boot's heartbeat row."""
        with self._lock:
            self._leases[lease.boot] = _Lease(lease, self._clock())

    def heartbeat(self, boot: BootId, state: WorkerState) -> bool:
        """Renews the lease; False if it is gone."""
        with self._lock:
            held = self._leases.get(boot)
            if held is None:
                return False
            held.lease = replace(held.lease, state=state)
            held.seen_at = self._clock()
            return True

    def retire(self, boot: BootId) -> None:
        """Removes the lease."""
        with self._lock:
            self._retire(boot)

    def _retire(self, boot: BootId) -> bool:
        self._take_revoked(boot)
        return self._leases.pop(boot, None) is not None

    def claim(self, boot: BootId, ids: Sequence[JobId]) -> list[ClaimedJob]:
        """Takes those of the jobs that are queued, due and not expired, in the order of `ids`."""
        with self._lock:
            if boot not in self._leases:
                return []
            now = self._clock()
            ready = [row for row in self._known(ids, None) if row.startable(now)]
            return [claim(row, boot, now) for row in ready]

    def claim_ready(self, boot: BootId, models: Sequence[str], max_items: int) -> list[ClaimedJob]:
        """Takes queued, due jobs of these models in a fair order."""
        with self._lock:
            now = self._clock()
            ready = [row for row in self._rows.values() if row.startable(now)]
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
                row = self._owned(boot, settlement.id, settlement.epoch)
                if row is None:
                    stale.append(settlement.id)
                else:
                    settle(row, settlement, block, now)
                    applied.append((settlement.id, settlement.state))
        return SettleOutcome(tuple(applied), tuple(stale))

    def hand_back(self, boot: BootId, rows: Sequence[HandBack]) -> list[JobId]:
        """Queues claimed jobs again, free of charge."""
        changed = []
        with self._lock:
            now = self._clock()
            for handed in rows:
                row = self._owned(boot, handed.id, handed.epoch)
                if row is not None:
                    requeue(row, now, JobState.EXPIRED if row.overdue(now) else JobState.QUEUED)
                    changed.append(handed.id)
        return changed

    def revoked(self, boot: BootId) -> list[JobId]:
        """Returns jobs that were cancelled under the boot since the last call; each once."""
        with self._lock:
            return self._take_revoked(boot)

    # -- the scheduler's loops ----------------------------------------------------------------------------

    def due(self, lease_ttl_s: float) -> DueWork:
        """Says which of the scheduler's steps have something to do."""
        with self._lock:
            now = self._clock()
            queued = [row for row in self._rows.values() if row.state is JobState.QUEUED]
            running = [row for row in self._rows.values() if row.state is JobState.RUNNING]
            return DueWork(
                announce=any(row.announce_at <= now for row in queued),
                expire=any(row.overdue(now) for row in queued),
                rescue=bool(self._silent(now - lease_ttl_s))
                or any(row.owner not in self._leases or row.deadline_at < now for row in running),
            )

    def announceable(self, limit: int, *, skip: Sequence[tuple[str, Lane]] = ()) -> list[Announcement]:
        """Takes due jobs in a fair order and moves their `announce_at` on."""
        with self._lock:
            now = self._clock()
            due = [
                row
                for row in self._rows.values()
                if row.startable(now) and row.announce_at <= now and (row.asked.model, row.asked.lane) not in skip
            ]
            chosen = fair_order(candidates(due, now), limit=limit, phase=self._phase)
            for job in chosen:
                row = self._rows[job.id]
                row.announce_at = now + announce_backoff_s(row.announce_count)
                row.announce_count += 1
            return [
                Announcement(job.id, job.model, job.lane, job.tenant, job.input_bytes, job.item_count) for job in chosen
            ]

    def expire(self, limit: int) -> list[JobId]:
        """Ends queued jobs whose time to live is over."""
        with self._lock:
            now = self._clock()
            overdue = [row for row in self._rows.values() if row.state is JobState.QUEUED and row.overdue(now)]
            overdue.sort(key=lambda row: (row.record.expires_at or 0.0, row.record.id))
            for row in overdue[:limit]:
                row.change(state=JobState.EXPIRED, finished_at=now)
            return [row.record.id for row in overdue[:limit]]

    def rescue(self, lease_ttl_s: float, limit: int) -> RescueOutcome:
        """Takes the running jobs of dead boots and of wedged runs."""
        with self._lock:
            now = self._clock()
            verdicts = list(self._verdicts(now, now - lease_ttl_s, limit))
            requeued, ended = self._apply(verdicts, now)
            silent = self._silent(now - lease_ttl_s)
            dead = [boot for boot in silent if not self._running_of(boot) and self._retire(boot)]
            return RescueOutcome(requeued, ended, tuple(dead))

    def _verdicts(self, now: float, silent_since: float, limit: int) -> Iterator[Verdict]:
        left = limit
        running = [row for row in self._rows.values() if row.state is JobState.RUNNING]
        for boot in sorted({row.owner or "" for row in running}):
            held = self._leases.get(boot)
            dead = held is None or held.seen_at < silent_since
            taken = [row for row in self._running_of(boot) if dead or row.deadline_at < now][:left]
            left -= len(taken)
            for row in taken:
                job = running_job(row)
                yield after_death(job, now) if dead else after_timeout(job, now, self._chance())

    def bury(self, boot: BootId, in_pass: Sequence[JobId]) -> RescueOutcome:
        """Declares a boot dead whose journal is at hand."""
        with self._lock:
            now = self._clock()
            suspects = frozenset(in_pass)
            running = [running_job(row) for row in self._running_of(boot)]
            verdicts = [after_death(job, now, in_pass=job.id in suspects) for job in running]
            requeued, ended = self._apply(verdicts, now)
            return RescueOutcome(requeued, ended, (boot,) if self._retire(boot) else ())

    # -- observation --------------------------------------------------------------------------------------

    def workers(self) -> list[WorkerLease]:
        """Returns all leases, with their ages."""
        with self._lock:
            now = self._clock()
            return [replace(held.lease, heartbeat_age_s=max(0.0, now - held.seen_at)) for held in self._leases.values()]

    def queue_depths(self) -> list[QueueDepth]:
        """Counts the queued and running jobs by model and lane."""
        with self._lock:
            now = self._clock()
            since: dict[tuple[str, str, JobState], list[float]] = {}
            for row in self._rows.values():
                if not row.state.terminal:
                    start = row.record.started_at if row.state is JobState.RUNNING else row.record.run_at
                    since.setdefault((row.asked.model, row.asked.lane, row.state), []).append(start or now)
            return [
                QueueDepth(model, type(row.asked.lane)(lane), state, len(starts), max(0.0, now - min(starts)))
                for (model, lane, state), starts in since.items()
            ]

    def ping(self) -> None:
        """Returns at once."""

    def close(self) -> None:
        """Has nothing to give up."""

    # -- helpers ------------------------------------------------------------------------------------------

    def _phase(self) -> float:
        return 1.0 - self._chance()

    def _known(self, ids: Iterable[JobId], tenant: str | None) -> list[MemoryRow]:
        rows = [self._rows[job_id] for job_id in dict.fromkeys(ids) if job_id in self._rows]
        return [row for row in rows if tenant is None or row.asked.tenant == tenant]

    def _owned(self, boot: BootId, job_id: JobId, epoch: int) -> MemoryRow | None:
        row = self._rows.get(job_id)
        owned = row is not None and row.state is JobState.RUNNING and row.owner == boot and row.record.epoch == epoch
        return row if owned else None

    def _running_of(self, boot: BootId) -> list[MemoryRow]:
        rows = [row for row in self._rows.values() if row.state is JobState.RUNNING and row.owner == boot]
        return sorted(rows, key=lambda row: (row.deadline_at, row.record.id))

    def _silent(self, since: float) -> list[BootId]:
        return sorted(boot for boot, held in self._leases.items() if held.seen_at < since)

    def _take_revoked(self, boot: BootId) -> list[JobId]:
        rows = [row for row in self._rows.values() if row.owner == boot and row.state is JobState.CANCELLED]
        for row in rows:
            row.owner = None
        return [row.record.id for row in rows]

    def _apply(
        self, verdicts: Iterable[Verdict], now: float
    ) -> tuple[tuple[JobId, ...], tuple[tuple[JobId, JobState], ...]]:
        requeued: list[JobId] = []
        ended: list[tuple[JobId, JobState]] = []
        for verdict in verdicts:
            row = self._rows[verdict.id]
            judge(row, verdict, now)
            if row.state is JobState.QUEUED:
                requeued.append(verdict.id)
            else:
                ended.append((verdict.id, row.state))
        return tuple(requeued), tuple(ended)
