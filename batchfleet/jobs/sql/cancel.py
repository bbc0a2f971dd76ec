"""Cancel: effective at once, since the epoch is raised; the owner is told when it asks."""

from collections.abc import Sequence

from batchfleet.database.statements import sql
from batchfleet.database.transaction import Transaction
from batchfleet.jobs.job import BootId, JobId
from batchfleet.jobs.sql.debts import owe
from batchfleet.jobs.sql.row_locks import lock_jobs
from batchfleet.jobs.states import JobState

_CANCEL = sql(
    """
    UPDATE jobs SET state = 'cancelled', epoch = epoch + 1, finished_at = :now
    WHERE id {in_ids} AND {state} IN ('queued', 'running') AND (CAST(:tenant AS text) IS NULL OR tenant = :tenant)
    RETURNING id, links
    """,
)
_STATES = sql("SELECT id, state FROM jobs WHERE id {in_ids} AND (CAST(:tenant AS text) IS NULL OR tenant = :tenant)")
_ANY_REVOKED = sql("SELECT 1 FROM jobs WHERE owner = :boot AND state = 'cancelled' AND owner IS NOT NULL LIMIT 1")
# A row that another has locked is being deleted: its owner need not be told.
_REVOKED = sql(
    """
    UPDATE jobs SET owner = NULL
    WHERE id {one_of}
        SELECT id FROM jobs WHERE owner = :boot AND state = 'cancelled' AND owner IS NOT NULL {skip_locked}
    {end}
    RETURNING id
    """,
)


def cancel(tx: Transaction, ids: Sequence[JobId], tenant: str | None) -> list[tuple[JobId, JobState, bool]]:
    """Cancels queued and running jobs; see `JobStore.cancel`. The owner stays, until `revoked` has told it."""
    parameters = {"ids": tx.ids(ids), "tenant": tenant}
    lock_jobs(tx, ids)
    cancelled = tx.rows(_CANCEL, {**parameters, "now": tx.now})
    owe(tx, ((job_id, JobState.CANCELLED, links) for job_id, links in cancelled))
    changed = {job_id for job_id, _ in cancelled}
    return [(job_id, JobState(state), job_id in changed) for job_id, state in tx.rows(_STATES, parameters)]


def any_revoked(tx: Transaction, boot: BootId) -> bool:
    """Returns whether `revoked` would return anything: a read, so that asking often costs no turn to write."""
    return bool(tx.rows(_ANY_REVOKED, {"boot": boot}))


def revoked(tx: Transaction, boot: BootId) -> list[JobId]:
    """Returns jobs that were cancelled under the boot, and takes it off them; see `JobStore.revoked`."""
    return [row[0] for row in tx.rows(_REVOKED, {"boot": boot})]
