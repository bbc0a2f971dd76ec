"""Announce and expire: what the scheduler does about queued jobs."""

from collections.abc import Callable, Collection

from batchfleet.database.statements import sql
from batchfleet.database.transaction import Transaction
from batchfleet.jobs.announce import ANNOUNCE_BASE_S, ANNOUNCE_CAP_S, MAX_ANNOUNCE_DOUBLINGS
from batchfleet.jobs.fairness import fair_order
from batchfleet.jobs.job import Announcement, JobId, Lane
from batchfleet.jobs.sql.debts import owe
from batchfleet.jobs.sql.flows import due_candidates
from batchfleet.jobs.states import JobState

_MOVE_ON = sql(
    """
    UPDATE jobs
    SET announce_at = :now + CASE WHEN announce_count >= :doublings THEN :cap
                             ELSE :base * (1 << announce_count) END,
        announce_count = announce_count + 1
    WHERE id {one_of}
        SELECT id FROM jobs WHERE id {in_ids} AND {state} = 'queued' AND announce_at <= :now {skip_locked}
    {end}
    RETURNING id
    """,
)
_EXPIRE = sql(
    """
    UPDATE jobs SET state = 'expired', finished_at = :now
    WHERE id {one_of}
        SELECT id FROM jobs WHERE state = 'queued' AND expires_at IS NOT NULL AND expires_at <= :now
        ORDER BY expires_at LIMIT :limit {skip_locked}
    {end}
    RETURNING id, links
    """,
)


def announceable(
    tx: Transaction, limit: int, skip: Collection[tuple[str, Lane]], phase: Callable[[], float]
) -> list[Announcement]:
    """Takes due jobs in a fair order and moves their `announce_at` on; see `JobStore.announceable`."""
    chosen = fair_order(due_candidates(tx, limit, skip), limit=limit, phase=phase)
    if not chosen:
        return []
    backoff = {"doublings": MAX_ANNOUNCE_DOUBLINGS, "base": ANNOUNCE_BASE_S, "cap": ANNOUNCE_CAP_S}
    ids = tx.ids([job.id for job in chosen])
    moved = {row[0] for row in tx.rows(_MOVE_ON, {"ids": ids, "now": tx.now, **backoff})}
    return [
        Announcement(job.id, job.model, job.lane, job.tenant, job.input_bytes, job.item_count)
        for job in chosen
        if job.id in moved
    ]


def expire(tx: Transaction, limit: int) -> list[JobId]:
    """Ends queued jobs whose time to live is over, the longest overdue first."""
    expired = tx.rows(_EXPIRE, {"now": tx.now, "limit": limit})
    owe(tx, ((job_id, JobState.EXPIRED, links) for job_id, links in expired))
    return [job_id for job_id, _ in expired]
