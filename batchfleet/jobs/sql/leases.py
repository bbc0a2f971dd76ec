"""Leases: one heartbeat row per worker boot."""

import orjson

from batchfleet.database.statements import sql
from batchfleet.database.transaction import Transaction
from batchfleet.jobs.job import BootId, WorkerLease, WorkerState
from batchfleet.jobs.sql import cancel

_REGISTER = sql(
    """
    INSERT INTO workers (boot, name, pid, state, models, registered_at, seen_at)
    VALUES (:boot, :name, :pid, :state, :models, :now, :now)
    ON CONFLICT (boot) DO UPDATE SET state = excluded.state, seen_at = excluded.seen_at
    """,
)
_HEARTBEAT = sql("UPDATE workers SET seen_at = :now, state = :state WHERE boot = :boot")
_RETIRE = sql("DELETE FROM workers WHERE boot = :boot")
_WORKERS = sql("SELECT boot, name, pid, state, models, seen_at FROM workers ORDER BY name, registered_at, boot")


def register(tx: Transaction, lease: WorkerLease) -> None:
    """Inserts the boot's row; a repeated call renews it."""
    tx.change(
        _REGISTER,
        {
            "boot": lease.boot,
            "name": lease.name,
            "pid": lease.pid,
            "state": lease.state.value,
            "models": orjson.dumps(lease.models).decode(),
            "now": tx.now,
        },
    )


def heartbeat(tx: Transaction, boot: BootId, state: WorkerState) -> bool:
    """Renews the lease; False if it is gone."""
    return tx.change(_HEARTBEAT, {"boot": boot, "state": state.value, "now": tx.now}) > 0


def retire(tx: Transaction, boot: BootId) -> bool:
    """Removes the lease, and the boot from jobs that were cancelled under it. Returns whether there was one."""
    cancel.revoked(tx, boot)
    return tx.change(_RETIRE, {"boot": boot}) > 0


def workers(tx: Transaction) -> list[WorkerLease]:
    """Returns all leases with their ages."""
    now = tx.now
    return [
        WorkerLease(
            boot=boot,
            name=name,
            pid=pid,
            state=WorkerState(state),
            models=tuple(orjson.loads(models)),
            heartbeat_age_s=max(0.0, now - seen_at),
        )
        for boot, name, pid, state, models, seen_at in tx.rows(_WORKERS, {})
    ]
