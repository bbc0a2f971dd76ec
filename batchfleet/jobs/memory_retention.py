"""Delete and purge in the store in memory. Not safe from several threads by itself."""

from collections.abc import Sequence

from batchfleet.jobs.blob_key import read_blob_key
from batchfleet.jobs.debts import OUTPUT, WEBHOOK
from batchfleet.jobs.job import Deleted, JobId
from batchfleet.jobs.memory_row import MemoryRow
from batchfleet.jobs.memory_tables import MemoryTables
from batchfleet.jobs.states import JobState


def delete(tables: MemoryTables, ids: Sequence[JobId], tenant: str | None) -> list[Deleted]:
    """Removes jobs that have ended; see `JobStore.delete`."""
    return [_deleted(tables, row) for row in tables.known(ids, tenant)]


def purge_results(tables: MemoryTables, before: float, limit: int) -> list[tuple[JobId, str | None]]:
    """Removes the results of jobs that ended before then and owe no output any more, oldest first."""
    removed: list[tuple[JobId, str | None]] = []
    for row in _ended(tables, before):
        result = row.record.result
        if result is not None and not tables.owes(row.record.id, OUTPUT) and len(removed) < limit:
            row.change(result=None, result_gone=True)
            removed.append((row.record.id, result.blob_key))
    return removed


def purge_jobs(tables: MemoryTables, before: float, limit: int) -> list[tuple[JobId, str | None]]:
    """Removes jobs that ended before then and owe nothing any more, oldest first."""
    rows = [row for row in _ended(tables, before) if not tables.owes(row.record.id, OUTPUT, WEBHOOK)]
    return [(row.record.id, _remove(tables, row)) for row in rows[:limit]]


def named_blobs(tables: MemoryTables, keys: Sequence[str]) -> set[str]:
    """Returns those of the blobs that are needed; see `JobStore.named_blobs`."""
    return {key for key in keys if _needed(tables, key)}


def _deleted(tables: MemoryTables, row: MemoryRow) -> Deleted:
    job_id, state = row.record.id, row.state
    owed = tables.owes(job_id, OUTPUT)
    gone = state.terminal and not owed
    return Deleted(job_id, state, _remove(tables, row) if gone else None, owed)


def _needed(tables: MemoryTables, key: str) -> bool:
    run = read_blob_key(key)
    if run is None:
        return True
    row = tables.rows.get(run[0])
    if row is None:
        return False
    result = row.record.result
    return (result is not None and result.blob_key == key) or (
        row.state is JobState.RUNNING and row.record.epoch == run[1]
    )


def _ended(tables: MemoryTables, before: float) -> list[MemoryRow]:
    ended = [row for row in tables.rows.values() if (row.record.finished_at or before) < before]
    return sorted(ended, key=lambda row: row.record.finished_at or 0.0)


def _remove(tables: MemoryTables, row: MemoryRow) -> str | None:
    job_id = row.record.id
    del tables.rows[job_id]
    for name in [name for name, (holder, _) in tables.keys.items() if holder == job_id]:
        del tables.keys[name]
    return None if row.record.result is None else row.record.result.blob_key
