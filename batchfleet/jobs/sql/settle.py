"""Settle and hand back: what a worker writes about jobs that it owns, guarded by owner and epoch."""

from collections.abc import Sequence

import orjson

from batchfleet.database.statements import fragment, records, sql
from batchfleet.database.transaction import Transaction
from batchfleet.jobs.blob_key import MAX_EPOCH
from batchfleet.jobs.job import BootId, HandBack, JobId, Settlement, SettleOutcome
from batchfleet.jobs.sql.debts import owe
from batchfleet.jobs.sql.row_locks import lock_jobs
from batchfleet.jobs.states import JobState
from batchfleet.jobs.text import storable

_OWNED = fragment("{named} AND jobs.epoch = r.epoch AND {jobs_state} = 'running' AND jobs.owner = :boot")

_END = sql(
    """
    UPDATE jobs
    SET state = r.state, owner = NULL, finished_at = :now, attempts = attempts + r.charge,
        error_code = r.code, error_message = r.message, error_item = r.item
    FROM {rows} WHERE {owned}
    RETURNING jobs.id, jobs.epoch, jobs.links
    """,
    owned=_OWNED,
    rows=records(
        "r", id="uuid", epoch="bigint", state="text", charge="bigint", code="text", message="text", item="bigint"
    ),
)
_RETRY = sql(
    """
    UPDATE jobs
    SET state = 'queued', owner = NULL, started_at = NULL, attempts = attempts + 1,
        run_at = :now + r.delay, announce_at = :now + r.delay, announce_count = 0,
        error_code = r.code, error_message = r.message, error_item = r.item
    FROM {rows} WHERE {owned}
    RETURNING jobs.id, jobs.epoch
    """,
    owned=_OWNED,
    rows=records("r", id="uuid", epoch="bigint", delay="float8", code="text", message="text", item="bigint"),
)
_RESULTS = sql(
    """
    INSERT INTO job_results (id, stored_at, provenance, format, blob_key, data)
    SELECT r.id, :now, r.provenance, r.format, r.blob_key,
           CASE WHEN r.format IS NULL OR r.blob_key IS NOT NULL THEN NULL
                WHEN r.size = 0 THEN {no_bytes}
                ELSE substr(:block, r.at + 1, r.size) END
    FROM {rows}
    """,
    rows=records("r", id="uuid", provenance="text", format="text", blob_key="text", at="int", size="int"),
)
_HAND_BACK = sql(
    """
    UPDATE jobs
    SET state = CASE WHEN expires_at <= :now THEN 'expired' ELSE 'queued' END,
        finished_at = CASE WHEN expires_at <= :now THEN :now END,
        started_at = CASE WHEN expires_at <= :now THEN started_at END,
        run_at = CASE WHEN r.delay > 0 AND (expires_at IS NULL OR expires_at > :now) THEN :now + r.delay
                      ELSE run_at END,
        owner = NULL, announce_at = :now + r.delay, announce_count = 0
    FROM {rows} WHERE {owned}
    RETURNING jobs.id, jobs.state, jobs.links
    """,
    owned=_OWNED,
    rows=records("r", id="uuid", epoch="bigint", delay="float8"),
)


def settle(tx: Transaction, boot: BootId, rows: Sequence[Settlement], block: bytes) -> SettleOutcome:
    """Writes results and states, in the order of `rows`; see `JobStore.settle`."""
    # A row that claims a higher epoch than a column holds is stale, and must not sink its batch.
    unique = {(row.id, row.epoch): row for row in reversed(rows) if row.epoch <= MAX_EPOCH}
    ordered = sorted(unique.values(), key=_by_id)
    ended = [row for row in ordered if row.state is not JobState.QUEUED]
    retried = [row for row in ordered if row.state is JobState.QUEUED]
    if ended and retried:
        lock_jobs(tx, [row.id for row in ordered])
    applied = _end(tx, boot, ended, block) | _retry(tx, boot, retried)

    done: list[tuple[JobId, JobState]] = []
    stale: list[JobId] = []
    for row in rows:
        if (row.id, row.epoch) in applied:
            applied.discard((row.id, row.epoch))
            done.append((row.id, row.state))
        else:
            stale.append(row.id)
    return SettleOutcome(tuple(done), tuple(stale))


def hand_back(tx: Transaction, boot: BootId, rows: Sequence[HandBack]) -> list[JobId]:
    """Queues claimed jobs again, free of charge; see `JobStore.hand_back`."""
    handed = [[row.id, row.epoch, row.delay_s] for row in sorted(rows, key=_by_id) if row.epoch <= MAX_EPOCH]
    changed = tx.rows(_HAND_BACK, {"rows": _json(handed), "boot": boot, "now": tx.now})
    owe(tx, ((job_id, JobState(state), links) for job_id, state, links in changed if links))
    return [row[0] for row in changed]


def _end(tx: Transaction, boot: BootId, rows: Sequence[Settlement], block: bytes) -> set[tuple[JobId, int]]:
    """Writes final states, results and what is owed; returns id and epoch of the jobs that were still the boot's.

    The rows come in the order of their ids, in which Postgres then locks the jobs (`row_locks`): the joins that could
    change it are off.
    """
    if not rows:
        return set()
    changed = tx.rows(_END, {"rows": _json([_end_row(row) for row in rows]), "boot": boot, "now": tx.now})
    links = {(job_id, epoch): flags for job_id, epoch, flags in changed}
    applied = [row for row in rows if (row.id, row.epoch) in links]
    _insert_results(tx, applied, block)
    if any(links.values()):
        owe(tx, ((row.id, row.state, links[row.id, row.epoch]) for row in applied))
    return set(links)


def _retry(tx: Transaction, boot: BootId, rows: Sequence[Settlement]) -> set[tuple[JobId, int]]:
    if not rows:
        return set()
    changed = tx.rows(_RETRY, {"rows": _json([_retry_row(row) for row in rows]), "boot": boot, "now": tx.now})
    return {(job_id, epoch) for job_id, epoch in changed}


def _insert_results(tx: Transaction, rows: Sequence[Settlement], block: bytes) -> None:
    """Stores what has a result or a provenance; each slice is cut from the block inside the statement."""
    stored = []
    for row in rows:
        succeeded = row.state is JobState.SUCCEEDED
        if succeeded or row.provenance is not None:
            form = (row.format or "") if succeeded else None
            stored.append([row.id, row.provenance, form, row.blob_key if succeeded else None, row.offset, row.length])
    if stored:
        tx.change(_RESULTS, {"rows": _json(stored), "block": block, "now": tx.now})


def _by_id(row: Settlement | HandBack) -> JobId:
    return row.id


def _end_row(row: Settlement) -> list[object]:
    charge = 1 if row.state is JobState.FAILED else 0
    error = row.error
    if error is None:
        return [row.id, row.epoch, row.state.value, charge, None, None, None]
    return [row.id, row.epoch, row.state.value, charge, storable(error.code), storable(error.message), error.item]


def _retry_row(row: Settlement) -> list[object]:
    error = row.error
    if error is None:
        return [row.id, row.epoch, row.retry_in_s, None, None, None]
    return [row.id, row.epoch, row.retry_in_s, storable(error.code), storable(error.message), error.item]


def _json(rows: Sequence[Sequence[object]]) -> str:
    return orjson.dumps(rows).decode()
