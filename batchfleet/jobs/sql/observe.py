"""Counts for metrics and dashboards."""

from batchfleet.database.statements import sql
from batchfleet.database.transaction import Transaction
from batchfleet.jobs.job import Lane, QueueDepth
from batchfleet.jobs.states import JobState

_QUEUED = sql("SELECT model, lane, COUNT(*), MIN(run_at) FROM jobs WHERE state = 'queued' GROUP BY model, lane")
_RUNNING = sql("SELECT model, lane, COUNT(*), MIN(started_at) FROM jobs WHERE state = 'running' GROUP BY model, lane")


def queue_depths(tx: Transaction) -> list[QueueDepth]:
    """Counts queued jobs (age: since they could start) and running ones (age: since they were claimed)."""
    now = tx.now
    return [
        QueueDepth(model, Lane(lane), state, count, max(0.0, now - since))
        for statement, state in ((_QUEUED, JobState.QUEUED), (_RUNNING, JobState.RUNNING))
        for model, lane, count, since in tx.rows(statement, {})
    ]
