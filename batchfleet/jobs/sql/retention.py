"""Delete and purge: jobs that have ended, with everything that is stored of them, and results that are too old.

Both purges walk an index from its oldest entry, so that a step is bounded by its limit whatever else is stored.
What others hold locked is left to them.
"""

from collections.abc import Sequence

import orjson

from batchfleet.database.statements import records, same, sql
from batchfleet.database.transaction import Transaction
from batchfleet.jobs.blob_key import read_blob_key
from batchfleet.jobs.debts import OUTPUT, PENDING
from batchfleet.jobs.job import Deleted, JobId
from batchfleet.jobs.sql.row_locks import lock_jobs
from batchfleet.jobs.states import JobState

OVERSAMPLE = 8
"""Rows looked at per row wanted: those that are still owed stay, and must not stop the others soon."""

_STATES = sql("SELECT id, state FROM jobs WHERE id {in_ids} AND (CAST(:tenant AS text) IS NULL OR tenant = :tenant)")
_OWED = sql("SELECT job_id FROM outbox WHERE job_id {in_ids} AND kind = :output AND state || '' = :pending")
_ENDED = sql(
    """
    SELECT e.id
    FROM (SELECT id, finished_at FROM jobs WHERE finished_at IS NOT NULL AND finished_at < :before
          ORDER BY finished_at LIMIT :scan {skip_locked}) e
    WHERE NOT EXISTS (SELECT 1 FROM outbox o WHERE {owing} AND o.state || '' = :pending)
    ORDER BY e.finished_at LIMIT :limit
    """,
    owing=same("o.job_id", "e.id"),
)
_DELETE_JOBS = sql("DELETE FROM jobs WHERE id {in_ids} AND {state} NOT IN ('queued', 'running') RETURNING id, links")
_DELETE_INPUTS = sql("DELETE FROM job_inputs WHERE id {in_ids}")
_DELETE_LINKS = sql("DELETE FROM job_links WHERE id {in_ids}")
_DELETE_KEYS = sql("DELETE FROM idempotency_keys WHERE job_id {in_ids}")
_DELETE_RESULTS = sql("DELETE FROM job_results WHERE id {in_ids} RETURNING id, blob_key")
# The row of the version before carries no time of its own, but its job does.
_OLD_RESULTS = sql(
    """
    SELECT r.id, r.blob_key
    FROM (SELECT id, blob_key, stored_at FROM job_results WHERE format IS NOT NULL AND stored_at < :before
          ORDER BY stored_at LIMIT :scan {skip_locked}) r
    LEFT JOIN jobs j ON {job}
    WHERE (j.id IS NULL OR j.finished_at < :before)
      AND NOT EXISTS (
        SELECT 1 FROM outbox o WHERE {owing} AND o.kind = :output AND o.state || '' = :pending)
    ORDER BY r.stored_at LIMIT :limit
    """,
    job=same("j.id", "r.id"),
    owing=same("o.job_id", "r.id"),
)
_FORGET_RESULTS = sql("UPDATE job_results SET format = NULL, blob_key = NULL, data = NULL WHERE id {in_ids}")
# Joins, not EXISTS: Postgres would hash all results to answer the latter.
_NAMED = sql(
    """
    SELECT r.key FROM {rows} LEFT JOIN job_results s ON {result} LEFT JOIN jobs ON {named}
    WHERE s.blob_key = r.key OR (jobs.epoch = r.epoch AND {jobs_state} = 'running')
    """,
    rows=records("r", key="text", id="uuid", epoch="bigint"),
    result=same("s.id", "r.id"),
)


def delete(tx: Transaction, ids: Sequence[JobId], tenant: str | None) -> list[Deleted]:
    """Removes jobs that have ended; see `JobStore.delete`."""
    lock_jobs(tx, ids)
    known = {job_id: JobState(state) for job_id, state in tx.rows(_STATES, {"ids": tx.ids(ids), "tenant": tenant})}
    owed: set[JobId] = set()
    if known:
        told = {"ids": tx.ids(list(known)), "output": OUTPUT, "pending": PENDING}
        owed = {row[0] for row in tx.rows(_OWED, told)}
    blobs = _remove(tx, [job_id for job_id, state in known.items() if state.terminal and job_id not in owed])
    return [Deleted(job_id, state, blobs.get(job_id), job_id in owed) for job_id, state in known.items()]


def purge_jobs(tx: Transaction, older_than_s: float, limit: int) -> list[tuple[JobId, str | None]]:
    """Removes jobs that ended longer ago, oldest first; see `JobStore.purge_jobs`."""
    told = {"before": tx.now - older_than_s, "limit": limit, "scan": OVERSAMPLE * limit, "pending": PENDING}
    ids = [row[0] for row in tx.rows(_ENDED, told)]
    blobs = _remove(tx, ids)
    return [(job_id, blobs.get(job_id)) for job_id in ids]


def purge_results(tx: Transaction, older_than_s: float, limit: int) -> list[tuple[JobId, str | None]]:
    """Removes the results of jobs that ended longer ago, oldest first; see `JobStore.purge_results`.

    The provenance stays with the job. While outputs are owed for very many of the oldest results, those behind them
    wait for that to end.
    """
    owed = {"output": OUTPUT, "pending": PENDING}
    before = tx.now - older_than_s
    found = tx.rows(_OLD_RESULTS, {"before": before, "limit": limit, "scan": OVERSAMPLE * limit, **owed})
    if found:
        tx.change(_FORGET_RESULTS, {"ids": tx.ids([row[0] for row in found])})
    return [(job_id, blob_key) for job_id, blob_key in found]


def named_blobs(tx: Transaction, keys: Sequence[str]) -> set[str]:
    """Returns those of the blobs that are needed; see `JobStore.named_blobs`."""
    named = {key: read_blob_key(key) for key in keys}
    rows = [[key, *run] for key, run in named.items() if run is not None]
    others = {key for key, run in named.items() if run is None}
    return others | {row[0] for row in tx.rows(_NAMED, {"rows": orjson.dumps(rows).decode()})}


def _remove(tx: Transaction, ids: Sequence[JobId]) -> dict[JobId, str | None]:
    """Deletes the rows of jobs that have ended, and returns the blobs of those that had one."""
    if not ids:
        return {}
    parameters = {"ids": tx.ids(ids)}
    removed = tx.rows(_DELETE_JOBS, parameters)
    tx.change(_DELETE_INPUTS, parameters)
    tx.change(_DELETE_KEYS, parameters)
    if any(links for _, links in removed):
        tx.change(_DELETE_LINKS, parameters)
    return dict(tx.rows(_DELETE_RESULTS, parameters))
