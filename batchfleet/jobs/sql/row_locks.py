"""Row locks on Postgres: who changes several jobs and may wait for others takes them in the order of their ids.

Two transactions that do so never wait for each other. Those that skip locked rows wait for nobody. SQLite has one
writer and no such locks.
"""

from collections.abc import Sequence

from batchfleet.database.statements import sql
from batchfleet.database.transaction import Transaction
from batchfleet.jobs.job import JobId

_LOCK = sql("SELECT 1 FROM jobs WHERE id {in_ids}", "SELECT 1 FROM jobs WHERE id {in_ids} ORDER BY id FOR UPDATE")


def lock_jobs(tx: Transaction, ids: Sequence[JobId]) -> None:
    """Takes the rows of jobs that the transaction changes next."""
    if tx.dialect == "postgresql" and len(ids) > 1:
        tx.rows(_LOCK, {"ids": tx.ids(ids)})
