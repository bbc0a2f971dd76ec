"""What the scheduler's loops do in the store in memory. Not safe from several threads by itself."""

from collections.abc import Callable, Collection, Iterator

from batchfleet.jobs.announce import announce_backoff_s
from batchfleet.jobs.fairness import fair_order
from batchfleet.jobs.job import Announcement, DueWork, JobId, Lane, QueueDepth
from batchfleet.jobs.memory_row import MemoryRow, candidates, running_job
from batchfleet.jobs.memory_tables import MemoryTables
from batchfleet.jobs.states import JobState
from batchfleet.jobs.verdict import Verdict, after_death, after_timeout


def due(tables: MemoryTables, now: float, lease_ttl_s: float) -> DueWork:
    """Says which of the scheduler's steps have something to do; see `JobStore.due`."""
    queued = [row for row in tables.rows.values() if row.state is JobState.QUEUED]
    running = [row for row in tables.rows.values() if row.state is JobState.RUNNING]
    return DueWork(
        announce=any(row.announce_at <= now for row in queued),
        expire=any(row.overdue(now) for row in queued),
        rescue=bool(tables.silent(now - lease_ttl_s))
        or any(row.owner not in tables.leases or row.deadline_at < now for row in running),
    )


def announceable(
    tables: MemoryTables, now: float, limit: int, skip: Collection[tuple[str, Lane]], phase: Callable[[], float]
) -> list[Announcement]:
    """Takes due jobs in a fair order and moves their `announce_at` on; see `JobStore.announceable`."""
    waiting = [
        row
        for row in tables.rows.values()
        if row.startable(now) and row.announce_at <= now and (row.asked.model, row.asked.lane) not in skip
    ]
    chosen = fair_order(candidates(waiting, now), limit=limit, phase=phase)
    for job in chosen:
        row = tables.rows[job.id]
        row.announce_at = now + announce_backoff_s(row.announce_count)
        row.announce_count += 1
    return [Announcement(job.id, job.model, job.lane, job.tenant, job.input_bytes, job.item_count) for job in chosen]


def expire(tables: MemoryTables, now: float, limit: int) -> list[JobId]:
    """Ends queued jobs whose time to live is over, the longest overdue first."""
    overdue = [row for row in tables.rows.values() if row.state is JobState.QUEUED and row.overdue(now)]
    overdue.sort(key=lambda row: (row.record.expires_at or 0.0, row.record.id))
    for row in overdue[:limit]:
        row.change(state=JobState.EXPIRED, finished_at=now)
        tables.owe(row, now)
    return [row.record.id for row in overdue[:limit]]


def verdicts(
    tables: MemoryTables, now: float, silent_since: float, limit: int, chance: Callable[[], float]
) -> Iterator[Verdict]:
    """Decides about the running jobs of dead boots and about wedged runs, at most `limit`."""
    left = limit
    running = [row for row in tables.rows.values() if row.state is JobState.RUNNING]
    for boot in sorted({row.owner or "" for row in running}):
        held = tables.leases.get(boot)
        dead = held is None or held.seen_at < silent_since
        taken = [row for row in tables.running_of(boot) if dead or row.deadline_at < now][:left]
        left -= len(taken)
        for row in taken:
            job = running_job(row)
            yield after_death(job, now) if dead else after_timeout(job, now, chance())


def queue_depths(tables: MemoryTables, now: float) -> list[QueueDepth]:
    """Counts the queued and running jobs by model and lane; see `JobStore.queue_depths`."""
    queues: dict[tuple[str, Lane, JobState], list[MemoryRow]] = {}
    for row in tables.rows.values():
        if not row.state.terminal:
            queues.setdefault((row.asked.model, row.asked.lane, row.state), []).append(row)
    return [
        QueueDepth(
            model,
            lane,
            state,
            len(rows),
            max(0.0, now - min(_since(row, now) for row in rows)),
            sum(row.asked.item_count for row in rows),
            sum(row.asked.input_bytes for row in rows),
        )
        for (model, lane, state), rows in queues.items()
    ]


def _since(row: MemoryRow, now: float) -> float:
    return (row.record.started_at if row.state is JobState.RUNNING else row.record.run_at) or now
