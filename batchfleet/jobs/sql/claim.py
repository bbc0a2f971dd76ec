"""Claim: a worker takes queued jobs, by the ids of a hint or, without hints, in a fair order."""

from collections.abc import Callable, Sequence
from functools import partial

from batchfleet.database.statements import sql
from batchfleet.database.transaction import Database, Row, Transaction
from batchfleet.jobs.fairness import fair_order
from batchfleet.jobs.job import NO_LINKS, BootId, ClaimedJob, JobId, JobLinks, Lane, LinkFlag, OnItemError
from batchfleet.jobs.sql.flows import ready_candidates
from batchfleet.jobs.sql.links import links_of

_CLAIM = sql(
    """
    UPDATE jobs
    SET state = 'running', owner = :boot, epoch = epoch + 1, started_at = :now, deadline_at = :now + run_timeout_s
    WHERE id {one_of}
        SELECT id FROM jobs
        WHERE id {in_ids} AND {state} = 'queued' AND run_at <= :now AND (expires_at IS NULL OR expires_at > :now)
          AND EXISTS (SELECT 1 FROM workers WHERE boot = :boot)
        {skip_locked}
    {end}
    RETURNING id, epoch, model, version, adapter, tenant, lane, item_count, on_item_error,
              attempts, max_attempts, crashes, suspect, run_at, expires_at, run_timeout_s, links
    """,
)
_INPUTS = sql("SELECT id, inputs, parameters, traceparent FROM job_inputs WHERE id {in_ids}")

CHOICES = 3
"""How often a worker without hints chooses anew before it leaves the field to others."""

_INPUT = int(LinkFlag.INPUT)
_LANES = {lane.value: lane for lane in Lane}
_ON_ITEM_ERROR = {choice.value: choice for choice in OnItemError}


def claim(tx: Transaction, boot: BootId, ids: Sequence[JobId]) -> list[ClaimedJob]:
    """Takes those that are queued, due and not expired, in the order of `ids`; see `JobStore.claim`."""
    wanted = list(dict.fromkeys(ids))
    now = tx.now
    taken = {row[0]: row for row in tx.rows(_CLAIM, {"boot": boot, "ids": tx.ids(wanted), "now": now})}
    if not taken:
        return []
    order = [job_id for job_id in wanted if job_id in taken]
    inputs = {row[0]: row for row in tx.rows(_INPUTS, {"ids": tx.ids(order)})}
    elsewhere = links_of(tx, [job_id for job_id in order if taken[job_id][-1] & _INPUT])
    return [_claimed(taken[job_id], inputs[job_id], elsewhere.get(job_id, NO_LINKS), now) for job_id in order]


def claim_ready(
    database: Database, boot: BootId, models: Sequence[str], max_items: int, phase: Callable[[], float]
) -> list[ClaimedJob]:
    """Takes ready jobs of these models while their items fit; see `JobStore.claim_ready`.

    Candidates are read before the turn to write is taken: the choice costs no other writer anything, an idle
    worker writes nothing, and the claim decides as always. Where others were quicker to all of them, it chooses
    again.
    """
    for _ in range(CHOICES):
        candidates = database.read(lambda tx: ready_candidates(tx, models, max_items))
        chosen = [job.id for job in fair_order(candidates, max_items=max_items, phase=phase)]
        if not chosen:
            break
        claimed = database.write(partial(claim, boot=boot, ids=chosen), durable=False)
        if claimed:
            return claimed
    return []


def _claimed(row: Row, inputs: Row, links: JobLinks, now: float) -> ClaimedJob:
    (job_id, epoch, model, version, adapter, tenant, lane, item_count, on_item_error) = row[:9]
    (attempts, max_attempts, crashes, suspect, run_at, expires_at, run_timeout_s, _) = row[9:]
    return ClaimedJob(
        id=job_id,
        epoch=epoch,
        model=model,
        version=version,
        adapter=adapter,
        tenant=tenant,
        lane=_LANES[lane],
        inputs=inputs[1],
        item_count=item_count,
        parameters=inputs[2],
        on_item_error=_ON_ITEM_ERROR[on_item_error],
        attempts=attempts,
        max_attempts=max_attempts,
        crashes=crashes,
        suspect=bool(suspect),
        age_s=max(0.0, now - run_at),
        ttl_left_s=None if expires_at is None else expires_at - now,
        # SQLite stores whole numbers short and RETURNING shows them so.
        run_timeout_s=float(run_timeout_s),
        traceparent=inputs[3],
        input_uri=links.input_uri,
    )
