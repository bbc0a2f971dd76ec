"""The port to the outbox. Synchronous, safe to call from any thread; each method is one transaction.

Implementation: `batchfleet.outbox.sql`, on SQLite and Postgres. The debts themselves are written by the job store.
Every method raises `StoreUnavailableError` when the database cannot be reached.
"""

from collections.abc import Sequence
from typing import Protocol

from batchfleet.outbox.delivery import Attempt, Delivery, DeliveryFilter, DeliveryId, SigningSecret


class OutboxStore(Protocol):
    """Deliveries, their log, and what webhooks are signed with."""

    def any_due(self) -> bool:
        """Returns whether `take_due` would return anything: one cheap probe."""
        ...

    def take_due(self, limit: int, *, resend_s: float) -> list[DeliveryId]:
        """Returns pending deliveries that are due, oldest first, and moves their `due_at` on by `resend_s`.

        Whoever takes them rings for each; a ring that is lost is thus repeated.
        """
        ...

    def begin(self, delivery: DeliveryId, *, lease_s: float) -> Delivery | None:
        """Takes a pending delivery for one attempt: epoch + 1, attempts + 1, not due again for `lease_s`.

        Returns None where it is not pending any more, or another attempt runs (its lease is not over).
        """
        ...

    def finish(self, delivery: DeliveryId, epoch: int, attempt: Attempt, *, retry_in_s: float | None) -> bool:
        """Logs an attempt and ends it: delivered where it has no error, pending again after `retry_in_s`, else failed.

        Returns False, and changes nothing but the log, where the epoch is an old one.
        """
        ...

    def find(self, delivery: DeliveryId, *, tenant: str | None = None) -> Delivery | None:
        """Returns a delivery (of the tenant, if given)."""
        ...

    def log_of(self, delivery: DeliveryId) -> list[Attempt]:
        """Returns its attempts, first to last."""
        ...

    def list_deliveries(self, wanted: DeliveryFilter) -> list[Delivery]:
        """Returns one page, newest first."""
        ...

    def replay(self, delivery: DeliveryId, *, tenant: str | None = None) -> Delivery | None:
        """Makes a delivery pending and due again, with a fresh schedule and the same id; None if there is none."""
        ...

    def purge(self, older_than_s: float, limit: int) -> int:
        """Removes finished deliveries and their log; returns how many."""
        ...

    def signing_secrets(self, tenant: str) -> list[SigningSecret]:
        """Returns those in use, newest first; makes the first one."""
        ...

    def rotate_secret(self, tenant: str, *, keep_old_s: float) -> SigningSecret:
        """Makes a new secret; the old ones go on signing for `keep_old_s`."""
        ...

    def take_duty(self, name: str, *, period_s: float) -> bool:
        """Returns whether the caller is to do a periodic duty now: True once per period over all processes."""
        ...

    def duties(self) -> Sequence[tuple[str, float]]:
        """Returns the duties and when each was taken last."""
        ...

    def close(self) -> None:
        """Gives up connections."""
        ...
