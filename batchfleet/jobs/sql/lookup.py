"""Look up and list: what clients see of jobs."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from batchfleet.database.pages import newest
from batchfleet.database.statements import Dialect, same, sql
from batchfleet.database.transaction import Row, Transaction
from batchfleet.jobs.job import NO_LINKS, JobError, JobFilter, JobId, JobLinks, JobRecord, Lane, StoredResult
from batchfleet.jobs.retry import DEAD_LETTER_CODES
from batchfleet.jobs.sql.links import links_of
from batchfleet.jobs.sql.tables import LISTED, job_inputs, job_results, jobs
from batchfleet.jobs.states import JobState

_JOB_COLUMNS = (
    *("id", "tenant", "model", "version", "adapter", "lane", "state", "item_count", "epoch", "attempts", "crashes"),
    *("max_attempts", "submitted_at", "run_at", "started_at", "finished_at", "expires_at", "retry_of"),
    *("error_code", "error_message", "error_item", "links"),
)
_FLAGS = _JOB_COLUMNS.index("links")
_MORE = (job_inputs.c.metadata, job_inputs.c.traceparent, job_results.c.provenance)
_STORED = job_results.c.format.is_not(None).label("stored")
_COLUMNS = (*(jobs.c[name] for name in _JOB_COLUMNS), *_MORE)
_RESULT = (job_results.c.format, job_results.c.blob_key, job_results.c.data)
_INPUT = same("job_inputs.id", "jobs.id")
_OWN_RESULT = same("job_results.id", "jobs.id")
_FROM = sql("jobs LEFT JOIN job_inputs ON {input} LEFT JOIN job_results ON {result}", input=_INPUT, result=_OWN_RESULT)
_TEXT = ", ".join(f"{column.table.name}.{column.name}" for column in _COLUMNS) + ", job_results.format IS NOT NULL"
_RESULT_TEXT = ", ".join(f"{column.table.name}.{column.name}" for column in _RESULT)
_WHERE = "FROM {known} WHERE jobs.id {in_ids} AND (CAST(:tenant AS text) IS NULL OR jobs.tenant = :tenant)"
_LOOK_UP = sql(f"SELECT {_TEXT} {_WHERE}", known=_FROM)
_LOOK_UP_RESULTS = sql(f"SELECT {_TEXT}, {_RESULT_TEXT} {_WHERE}", known=_FROM)

_LANES = {lane.value: lane for lane in Lane}
_STATES = {state.value: state for state in JobState}


def look_up(tx: Transaction, ids: Sequence[JobId], tenant: str | None, *, with_results: bool) -> list[JobRecord]:
    """Returns the jobs that exist; see `JobStore.look_up`."""
    statement = _LOOK_UP_RESULTS if with_results else _LOOK_UP
    return _records(tx, tx.rows(statement, {"ids": tx.ids(ids), "tenant": tenant}))


def list_jobs(tx: Transaction, wanted: JobFilter) -> list[JobRecord]:
    """Returns one page, newest first; see `JobStore.list_jobs`."""
    return _records(tx, tx.select(listing(wanted, tx.dialect)))


def listing(wanted: JobFilter, dialect: Dialect) -> sa.Select[Any]:
    """Returns the query for one page."""
    known = jobs.outerjoin(job_inputs, sa.text(_INPUT.of(dialect)))
    known = known.outerjoin(job_results, sa.text(_OWN_RESULT.of(dialect)))
    query = newest(sa.select(*_COLUMNS, _STORED).select_from(known), jobs, wanted.tenant, wanted.after)
    if wanted.tenant is not None and not wanted.dead_letters:
        query = query.where(sa.text(f"jobs.{LISTED}"))
    if wanted.states:
        query = query.where(jobs.c.state.in_(sorted(state.value for state in wanted.states)))
    if wanted.model is not None:
        query = query.where(jobs.c.model == wanted.model)
    if wanted.dead_letters:
        used_up = jobs.c.attempts >= jobs.c.max_attempts
        # The literal lets the partial index of failed jobs serve.
        failed = sa.literal_column("jobs.state") == sa.literal_column("'failed'")
        query = query.where(failed, used_up | jobs.c.error_code.in_(sorted(DEAD_LETTER_CODES)))
    return query.limit(wanted.limit)


def _records(tx: Transaction, rows: Sequence[Row]) -> list[JobRecord]:
    links = links_of(tx, [row[0] for row in rows if row[_FLAGS]])
    return [_record(row, links.get(row[0], NO_LINKS)) for row in rows]


def _record(row: Row, links: JobLinks) -> JobRecord:
    (job_id, tenant, model, version, adapter, lane, state, item_count, epoch, attempts, crashes) = row[:11]
    (max_attempts, submitted_at, run_at, started_at, finished_at, expires_at, retry_of) = row[11:18]
    (code, message, item, _, metadata, traceparent, provenance, stored) = row[18:26]
    return JobRecord(
        id=job_id,
        tenant=tenant,
        model=model,
        version=version,
        adapter=adapter,
        lane=_LANES[lane],
        state=_STATES[state],
        item_count=item_count,
        epoch=epoch,
        attempts=attempts,
        crashes=crashes,
        max_attempts=max_attempts,
        submitted_at=submitted_at,
        run_at=run_at,
        started_at=started_at,
        finished_at=finished_at,
        expires_at=expires_at,
        metadata=metadata,
        error=None if code is None else JobError(code, message, item),
        provenance=provenance,
        retry_of=retry_of,
        links=links,
        traceparent=traceparent,
        result_gone=state == "succeeded" and not stored,
        result=_result(row[26:]) if len(row) > 26 and state == "succeeded" else None,
    )


def _result(row: Row) -> StoredResult | None:
    form, blob_key, data = row
    return None if form is None else StoredResult(format=form, data=data, blob_key=blob_key)
