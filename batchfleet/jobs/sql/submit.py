"""Submit: idempotency keys first, then the rows of new jobs."""

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from batchfleet.database.statements import records, same, sql
from batchfleet.database.transaction import Row, Transaction
from batchfleet.jobs.announce import ANNOUNCER_S
from batchfleet.jobs.job import JobId, NewJob, Submitted
from batchfleet.jobs.sql.links import flags_of, insert_links
from batchfleet.jobs.sql.tables import job_inputs, jobs
from batchfleet.jobs.states import JobState

_RESERVE = sql(
    """
    INSERT INTO idempotency_keys (tenant, key, job_id, fingerprint, created_at)
    SELECT r.tenant, r.key, r.job_id, r.fingerprint, :now FROM {rows} WHERE true ORDER BY r.tenant, r.key
    ON CONFLICT (tenant, key) DO NOTHING
    """,
    rows=records("r", tenant="text", key="text", job_id="uuid", fingerprint="text"),
)
_HOLDERS = sql(
    """
    SELECT k.tenant, k.key, k.job_id, k.fingerprint, j.state
    FROM {rows} JOIN idempotency_keys k ON {tenant} AND k.key = r.key LEFT JOIN jobs j ON {job}
    """,
    rows=records("r", tenant="text", key="text"),
    tenant=same("k.tenant", "r.tenant"),
    job=same("j.id", "k.job_id"),
)
_EXISTING = sql("SELECT id, state FROM jobs WHERE id {in_ids}")


@dataclass(frozen=True, slots=True)
class _Holder:
    """The job that a key stands for."""

    id: JobId
    fingerprint: str
    state: JobState


def submit(tx: Transaction, new: Sequence[NewJob], *, repeated: bool = False) -> list[Submitted]:
    """Inserts jobs and answers in order; see `JobStore.submit`.

    Args:
        tx: The transaction.
        new: The jobs.
        repeated: Whether some may exist, since an earlier call committed and its answer was lost.

    Raises:
        DuplicateRowError: If one exists and `repeated` is not set.
    """
    holders = _reserve(tx, new)
    existing = _existing(tx, new) if repeated else {}
    fresh: list[NewJob] = []
    answers: list[Submitted] = []
    for job in new:
        holder = holders.get((job.tenant, job.idempotency_key)) if job.idempotency_key is not None else None
        if holder is not None and holder.id != job.id:
            conflict = holder.fingerprint != job.fingerprint
            answers.append(Submitted(holder.id, holder.state, created=False, conflict=conflict))
            continue
        state = existing.get(job.id)
        if state is None:
            fresh.append(job)
        answers.append(Submitted(job.id, state or JobState.QUEUED))
    _insert(tx, fresh)
    return answers


def _reserve(tx: Transaction, new: Sequence[NewJob]) -> dict[tuple[str, str | None], _Holder]:
    """Takes the keys that are free and returns who holds each one now.

    They are taken in key order, so that two calls with the same keys wait for each other and never deadlock. The
    first of a call's jobs gets a key that several of them carry.
    """
    wanted: dict[tuple[str, str], NewJob] = {}
    for job in new:
        if job.idempotency_key is not None:
            wanted.setdefault((job.tenant, job.idempotency_key), job)
    holders: dict[tuple[str, str | None], _Holder] = {}
    # A key that was taken can be gone a moment later, its job deleted: it is then free.
    while missing := {name: job for name, job in wanted.items() if name not in holders}:
        rows = [[tenant, key, job.id, job.fingerprint] for (tenant, key), job in missing.items()]
        tx.change(_RESERVE, {"rows": orjson.dumps(rows).decode(), "now": tx.now})
        found = tx.rows(_HOLDERS, {"rows": orjson.dumps(list(missing)).decode()})
        for tenant, key, job_id, fingerprint, state in found:
            # A job of this very call has no row yet.
            holders[tenant, key] = _Holder(job_id, fingerprint, JobState(state or JobState.QUEUED))
    return holders


def _existing(tx: Transaction, new: Sequence[NewJob]) -> dict[JobId, JobState]:
    found = tx.rows(_EXISTING, {"ids": tx.ids([job.id for job in new])})
    return {job_id: JobState(state) for job_id, state in found}


def _insert(tx: Transaction, new: Sequence[NewJob]) -> None:
    if not new:
        return
    now = tx.now
    tx.insert(jobs, [_job_row(job, now) for job in new])
    tx.insert(job_inputs, [(job.id, job.traceparent, job.parameters, job.metadata, job.inputs) for job in new])
    insert_links(tx, new)


def _job_row(job: NewJob, now: float) -> Row:
    run_at = now if job.run_at is None else max(now, job.run_at)
    announce_at = max(run_at, now + ANNOUNCER_S) if job.announced_by_submitter else run_at
    return (
        job.id,
        job.tenant,
        job.model,
        job.version,
        job.adapter,
        job.lane.value,
        job.on_item_error.value,
        job.item_count,
        len(job.inputs),
        job.max_attempts,
        job.run_timeout_s,
        now,
        None if job.ttl_s is None else now + job.ttl_s,
        job.retry_of,
        "queued",
        0,  # epoch
        0,  # attempts
        0,  # crashes
        0,  # suspect
        run_at,
        announce_at,
        0,  # announce_count
        None,  # owner
        None,  # started_at
        None,  # deadline_at
        None,  # finished_at
        None,  # error_code
        None,  # error_message
        None,  # error_item
        flags_of(job),
    )
