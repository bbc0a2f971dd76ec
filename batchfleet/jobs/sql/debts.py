"""Owe: whatever ends a job writes what its end owes into the outbox, in the same transaction."""

from collections.abc import Iterable

import orjson

from batchfleet.database.statements import records, same, sql
from batchfleet.database.transaction import Transaction
from batchfleet.jobs.debts import OUTPUT, OWING, PENDING, event_of, kinds_owed
from batchfleet.jobs.job import JobId, new_job_id
from batchfleet.jobs.states import JobState

# A job ends once; that it owes each thing once is the index's word all the same.
_OWE = sql(
    """
    INSERT INTO outbox (id, kind, tenant, job_id, target, event, state, attempts, epoch, created_at, due_at)
    SELECT r.id, r.kind, j.tenant, j.id, CASE WHEN r.kind = :output THEN l.output_uri ELSE l.callback_url END,
           r.event, :pending, 0, 0, :now, :now
    FROM {rows} JOIN jobs j ON {job} JOIN job_links l ON {link} WHERE true
    ON CONFLICT (job_id, kind) DO NOTHING
    """,
    rows=records("r", id="uuid", kind="text", job_id="uuid", event="text"),
    job=same("j.id", "r.job_id"),
    link=same("l.id", "r.job_id"),
)


def owe(tx: Transaction, changed: Iterable[tuple[JobId, JobState, int]]) -> None:
    """Writes the debts of jobs that have just changed.

    Jobs without links, nearly all, cost a test of an integer.

    Args:
        tx: The transaction that changed them.
        changed: Id, new state and `LinkFlag`s of each; those that have not ended owe nothing.
    """
    rows = [
        [new_job_id(), kind, job_id, event_of(state)]
        for job_id, state, links in changed
        if links & OWING
        for kind in kinds_owed(links, state)
    ]
    if rows:
        tx.change(_OWE, {"rows": orjson.dumps(rows).decode(), "output": OUTPUT, "pending": PENDING, "now": tx.now})
