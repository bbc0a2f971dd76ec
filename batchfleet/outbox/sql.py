"""The outbox over a database; see `OutboxStore`. Signing secrets are in `secrets_sql`."""

from collections.abc import Collection, Sequence

import orjson
import sqlalchemy as sa

from batchfleet.clock import Wall, wall
from batchfleet.database.opening import open_database
from batchfleet.database.pages import newest
from batchfleet.database.statements import records, sql
from batchfleet.database.transaction import Row, Transaction
from batchfleet.jobs.sql.tables import LISTED, outbox
from batchfleet.jobs.text import storable
from batchfleet.outbox import secrets_sql
from batchfleet.outbox.delivery import (
    Attempt,
    Delivery,
    DeliveryFilter,
    DeliveryId,
    DeliveryKind,
    DeliveryState,
    DueDelivery,
    Lane,
    OutboxDepth,
    Outcome,
    SigningSecret,
)
from batchfleet.outbox.sealing import Sealer

_COLUMNS = (
    "id, kind, tenant, job_id, target, event, state, attempts, epoch, created_at, due_at, finished_at, last_status, "
    "last_error"
)
_FIELDS = _COLUMNS.split(", ")

_NEXT_DUE = sql(
    "SELECT MIN(due_at) - :now FROM outbox WHERE state = 'pending'",
    "SELECT MIN(due_at) - CAST(extract(epoch FROM clock_timestamp()) AS float8) FROM outbox WHERE state = 'pending'",
)
_WINDOW = 4
"""Due deliveries looked at per delivery wanted, so that one lane's many do not hide the others' few."""
_TAKE_DUE = sql(
    """
    UPDATE outbox SET due_at = :now + :resend
    WHERE id {one_of}
        SELECT id FROM (
            SELECT id, due_at, ROW_NUMBER() OVER (PARTITION BY kind, tenant ORDER BY due_at, id) AS turn
            FROM (SELECT id, kind, tenant, due_at FROM outbox
                  WHERE state = 'pending' AND due_at <= :now
                    AND NOT EXISTS (SELECT 1 FROM {rows} WHERE r.kind = outbox.kind AND r.tenant = outbox.tenant)
                  ORDER BY due_at LIMIT :window {skip_locked}) oldest
        ) turns
        WHERE turn <= :each ORDER BY turn, due_at, id LIMIT :limit
    {end}
    RETURNING id, epoch
    """,
    rows=records("r", kind="text", tenant="text"),
)
# `leased_until` also holds between two attempts: before it nobody begins another.
_BEGIN = sql(
    f"""
    UPDATE outbox SET epoch = epoch + 1, attempts = attempts + 1, leased_until = :now + :lease, due_at = :now + :lease
    WHERE id = :id AND {{state}} = 'pending' AND (leased_until IS NULL OR leased_until <= :now)
    RETURNING {_COLUMNS}
    """,  # noqa: S608 - names of ours
)
_LOG_BEGIN = sql(
    "INSERT INTO outbox_attempts (delivery_id, number, began_at, duration_s) VALUES (:id, :epoch, :now, -1)"
)
_FINISH = sql(
    """
    UPDATE outbox SET state = :state, due_at = :due, leased_until = :due, finished_at = :finished,
                      last_status = :status, last_error = :error
    WHERE id = :id AND epoch = :epoch AND {state} = 'pending'
    """,
)
_LOG_FINISH = sql(
    """
    UPDATE outbox_attempts SET duration_s = :duration, status = :status, error = :error
    WHERE delivery_id = :id AND number = :epoch
    """,
)
_LOG = sql("SELECT began_at, duration_s, status, error FROM outbox_attempts WHERE delivery_id = :id ORDER BY number")
_REPLAY = sql(
    f"""
    UPDATE outbox SET state = 'pending', epoch = epoch + 1, attempts = 0, due_at = :now, leased_until = NULL,
                      finished_at = NULL
    WHERE id = :id AND (CAST(:tenant AS text) IS NULL OR tenant = :tenant)
    RETURNING {_COLUMNS}
    """,  # noqa: S608 - names of ours
)
_PURGE = sql(
    """
    DELETE FROM outbox WHERE id {one_of}
        SELECT id FROM outbox WHERE finished_at IS NOT NULL AND finished_at < :before
        ORDER BY finished_at LIMIT :limit {skip_locked}
    {end}
    RETURNING id
    """,
)
_PURGE_LOG = sql("DELETE FROM outbox_attempts WHERE delivery_id {in_ids}")
_DEPTHS = sql("SELECT kind, COUNT(*), MIN(created_at) FROM outbox WHERE state = 'pending' GROUP BY kind ORDER BY kind")
_TAKE_DUTY = sql(
    """
    INSERT INTO duties (name, taken_at) VALUES (:name, :now)
    ON CONFLICT (name) DO UPDATE SET taken_at = excluded.taken_at WHERE duties.taken_at <= :before
    """,
)
_DUTIES = sql("SELECT name, taken_at FROM duties ORDER BY name")


class SqlOutbox:
    """An `OutboxStore` over SQLite or Postgres. Nothing is connected before it is used.

    Args:
        database_url: `sqlite:///path` or `postgresql+psycopg://…`.
        sealer: Seals the signing secrets; default: none are sealed.
        clock: The time on SQLite. Postgres has its own.
    """

    def __init__(self, database_url: str, *, sealer: Sealer | None = None, clock: Wall = wall) -> None:
        self._database = open_database(database_url, clock)
        self._sealer = sealer or Sealer()

    def next_due_s(self) -> float | None:
        """Returns the seconds until something is due, None if nothing is pending."""
        left = self._database.read(lambda tx: tx.rows(_NEXT_DUE, _now_on_sqlite(tx)))[0][0]
        return None if left is None else max(0.0, left)

    def take_due(
        self, limit: int, *, resend_s: float, without: Collection[Lane] = (), per_lane: int | None = None
    ) -> list[DueDelivery]:
        """Returns pending deliveries that are due and moves their `due_at` on."""
        rows = orjson.dumps([[lane.kind.value, lane.tenant] for lane in without]).decode()
        told = {"resend": resend_s, "limit": limit, "window": _WINDOW * limit, "rows": rows, "each": per_lane or limit}
        taken = self._database.write(lambda tx: tx.rows(_TAKE_DUE, {**told, "now": tx.now}))
        return [DueDelivery(*row) for row in sorted(taken)]

    def begin(self, delivery: DeliveryId, *, lease_s: float) -> Delivery | None:
        """Takes a pending delivery for one attempt, and begins its entry in the log."""

        def work(tx: Transaction) -> Delivery | None:
            begun = _one(tx.rows(_BEGIN, {"id": delivery, "now": tx.now, "lease": lease_s}))
            if begun is not None:
                tx.change(_LOG_BEGIN, {"id": delivery, "epoch": begun.epoch, "now": tx.now})
            return begun

        return self._database.write(work)

    def finish(self, delivery: DeliveryId, epoch: int, outcome: Outcome, *, retry_in_s: float | None) -> bool:
        """Ends an attempt; False where the epoch is an old one."""
        error = None if outcome.error is None else storable(outcome.error)
        told = {"id": delivery, "epoch": epoch, "status": outcome.status, "error": error}

        def work(tx: Transaction) -> bool:
            tx.change(_LOG_FINISH, {**told, "duration": max(0.0, outcome.duration_s)})
            again = error is not None and retry_in_s is not None
            times = {"due": tx.now + (retry_in_s or 0.0), "finished": None if again else tx.now}
            failed = DeliveryState.PENDING if again else DeliveryState.FAILED
            state = DeliveryState.DELIVERED if error is None else failed
            return tx.change(_FINISH, {**told, **times, "state": state.value}) > 0

        return self._database.write(work)

    def find(self, delivery: DeliveryId, *, tenant: str | None = None) -> Delivery | None:
        """Returns a delivery (of the tenant, if given)."""
        query = _all().where(outbox.c.id == delivery)
        if tenant is not None:
            query = query.where(outbox.c.tenant == tenant)
        return _one(self._database.read(lambda tx: tx.select(query)))

    def log_of(self, delivery: DeliveryId) -> list[Attempt]:
        """Returns its attempts, first to last."""
        rows = self._database.read(lambda tx: tx.rows(_LOG, {"id": delivery}))
        return [_attempt(number, row) for number, row in enumerate(rows, 1)]

    def list_deliveries(self, wanted: DeliveryFilter) -> list[Delivery]:
        """Returns one page, newest first."""
        query = listing(wanted)
        return [_delivery(row) for row in self._database.read(lambda tx: tx.select(query))]

    def replay(self, delivery: DeliveryId, *, tenant: str | None = None) -> Delivery | None:
        """Makes a delivery pending and due again; None if there is none."""
        return self._database.write(
            lambda tx: _one(tx.rows(_REPLAY, {"id": delivery, "tenant": tenant, "now": tx.now}))
        )

    def purge(self, older_than_s: float, limit: int) -> int:
        """Removes deliveries that were finished longer ago, with their log, and expired secrets."""

        def work(tx: Transaction) -> int:
            secrets_sql.forget_expired(tx)
            gone = [row[0] for row in tx.rows(_PURGE, {"before": tx.now - older_than_s, "limit": limit})]
            if gone:
                tx.change(_PURGE_LOG, {"ids": tx.ids(gone)})
            return len(gone)

        return self._database.write(work)

    def depths(self) -> list[OutboxDepth]:
        """Counts what is pending, by kind."""

        def work(tx: Transaction) -> list[OutboxDepth]:
            rows = tx.rows(_DEPTHS, {})
            return [OutboxDepth(DeliveryKind(kind), count, max(0.0, tx.now - since)) for kind, count, since in rows]

        return self._database.read(work)

    def signing_secrets(self, tenant: str) -> list[SigningSecret]:
        """Returns those in use, newest first; makes the first one."""
        found = self._database.read(lambda tx: secrets_sql.in_use(tx, tenant, self._sealer))
        if found:
            return found
        return self._database.write(lambda tx: secrets_sql.make_first(tx, tenant, self._sealer))

    def rotate_secret(self, tenant: str, *, keep_old_s: float) -> SigningSecret:
        """Makes a new secret; the old ones go on signing for `keep_old_s`."""
        return self._database.write(lambda tx: secrets_sql.rotate(tx, tenant, keep_old_s, self._sealer))

    def take_duty(self, name: str, *, period_s: float) -> bool:
        """Returns whether the caller is to do a periodic duty now."""

        def work(tx: Transaction) -> bool:
            return tx.change(_TAKE_DUTY, {"name": name, "now": tx.now, "before": tx.now - period_s}) > 0

        return self._database.write(work)

    def duties(self) -> Sequence[tuple[str, float]]:
        """Returns the duties and when each was taken last."""
        return [(name, taken_at) for name, taken_at in self._database.read(lambda tx: tx.rows(_DUTIES, {}))]

    def close(self) -> None:
        """Gives up connections."""
        self._database.close()


def listing(wanted: DeliveryFilter) -> sa.Select[tuple[object, ...]]:
    """Returns the query for one page."""
    query = newest(_all(), outbox, wanted.tenant, wanted.after).limit(wanted.limit)
    if wanted.job_id is not None:
        # A job has few. They are one tenant's, and in this order no planner can walk through other jobs' for them.
        query = query.where(outbox.c.job_id == wanted.job_id)
        query = query.order_by(None).order_by(outbox.c.tenant.desc(), outbox.c.id.desc())
    elif wanted.tenant is not None:
        query = query.where(sa.text(LISTED))
    if wanted.states:
        query = query.where(outbox.c.state.in_(sorted(wanted.states)))
    if wanted.kind is not None:
        query = query.where(outbox.c.kind == wanted.kind.value)
    return query


def _now_on_sqlite(tx: Transaction) -> dict[str, float]:
    """Postgres reads its clock in the statement itself: asking for it would be a second round trip."""
    return {"now": tx.now} if tx.dialect == "sqlite" else {}


def _all() -> sa.Select[tuple[object, ...]]:
    return sa.select(*(outbox.c[name] for name in _FIELDS))


def _one(rows: Sequence[Row]) -> Delivery | None:
    return _delivery(rows[0]) if rows else None


def _delivery(row: Row) -> Delivery:
    values = dict(zip(_FIELDS, row, strict=True))
    return Delivery(**{**values, "kind": DeliveryKind(values["kind"]), "state": DeliveryState(values["state"])})


def _attempt(number: int, row: Row) -> Attempt:
    began_at, duration_s, status, error = row
    outcome = Outcome(duration_s=duration_s, status=status, error=error) if duration_s >= 0 else None
    return Attempt(number=number, began_at=began_at, outcome=outcome)
