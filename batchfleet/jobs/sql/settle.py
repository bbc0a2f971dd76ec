"""Settle and hand back: what a worker writes about jobs that it owns, guarded by owner and epoch."""

from collections.abc import Sequence

import orjson

from batchfleet.database.statements import Sql, fragment, records, sql
from batchfleet.database.transaction import Transaction
from batchfleet.jobs.job import BootId, HandBack, JobId, Settlement, SettleOutcome
from batchfleet.jobs.states import JobState
from batchfleet.jobs.text import storable

MAX_EPOCH = 2**63 - 1
"""What a column holds; a row that claims a higher one is stale, and must not sink its batch."""

_OWNED = fragment("jobs.id = r.id AND jobs.epoch = r.epoch AND {jobs_state} = 'running' AND jobs.owner = :boot")

_END = sql(
    """
    UPDATE jobs
    SET state = r.state, owner = NULL, finished_at = :now, attempts = attempts + r.charge,
        error_code = r.code, error_message = r.message, error_item = r.item
    FROM {rows} WHERE {owned}
    RETURNING jobs.id, jobs.epoch
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
    INSERT INTO job_results (id, provenance, format, blob_key, data)
    SELECT r.id, r.provenance, r.format, r.blob_key,
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
        owner = NULL, announce_at = :now, announce_count = 0
    FROM {rows} WHERE {owned}
    RETURNING jobs.id
    """,
    owned=_OWNED,
    rows=records("r", id="uuid", epoch="bigint"),
)


def settle(tx: Transaction, boot: BootId, rows: Sequence[Settlement], block: bytes) -> SettleOutcome:
    """Writes results and states, in the order of `rows`; see `JobStore.settle`."""
    unique = {(row.id, row.epoch): row for row in reversed(rows) if row.epoch <= MAX_EPOCH}
    ended = [row for row in unique.values() if row.state is not JobState.QUEUED]
    retried = [row for row in unique.values() if row.state is JobState.QUEUED]
    applied = _change(tx, _END, boot, [_end_row(row) for row in ended])
    _insert_results(tx, [row for row in ended if (row.id, row.epoch) in applied], block)
    applied |= _change(tx, _RETRY, boot, [_retry_row(row) for row in retried])

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
    parameters = {
        "rows": _json([[row.id, row.epoch] for row in rows if row.epoch <= MAX_EPOCH]),
        "boot": boot,
        "now": tx.now,
    }
    return [row[0] for row in tx.rows(_HAND_BACK, parameters)]


def _change(tx: Transaction, statement: Sql, boot: BootId, rows: Sequence[Sequence[object]]) -> set[tuple[str, int]]:
    if not rows:
        return set()
    changed = tx.rows(statement, {"rows": _json(rows), "boot": boot, "now": tx.now})
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
        tx.change(_RESULTS, {"rows": _json(stored), "block": block})


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
