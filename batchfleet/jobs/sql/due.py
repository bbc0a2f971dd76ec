"""Due: whether the scheduler's steps have anything to do. One statement, since every scheduler asks once a second."""

from batchfleet.database.statements import fragment, sql
from batchfleet.database.transaction import Transaction
from batchfleet.jobs.job import DueWork
from batchfleet.jobs.sql.rescue import OWNERS

# Each order leads to its index: on an empty table, as at a fleet's start, Postgres may choose any partial one.
_DUE = sql(
    """
    {hop}
    SELECT
        (SELECT 1 FROM jobs WHERE state = 'queued' AND announce_at <= {now} ORDER BY announce_at LIMIT 1),
        (SELECT 1 FROM jobs WHERE state = 'queued' AND expires_at IS NOT NULL AND expires_at <= {now}
         ORDER BY expires_at LIMIT 1),
        COALESCE((SELECT 1 FROM workers WHERE seen_at < {now} - :ttl LIMIT 1),
                 (SELECT 1 FROM owners WHERE seen_at IS NULL OR deadline_at < {now} LIMIT 1))
    """,
    hop=OWNERS,
    now=fragment("{statement_now}"),
)


def due(tx: Transaction, lease_ttl_s: float) -> DueWork:
    """Says which steps have something to do; see `JobStore.due`."""
    # Postgres has its own time in the statement: asking for it first would be a second one.
    parameters = {"ttl": lease_ttl_s, **({"now": tx.now} if tx.dialect == "sqlite" else {})}
    ((announce, expire, rescue),) = tx.rows(_DUE, parameters)
    return DueWork(announce=bool(announce), expire=bool(expire), rescue=bool(rescue))
