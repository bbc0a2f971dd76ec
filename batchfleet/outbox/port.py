"""The port to the outbox. Synchronous, safe to call from any thread; each method is one transaction.

Implementation: `batchfleet.outbox.sql`, on SQLite and Postgres. The debts themselves are written by the job store.
Every method raises `StoreUnavailableError` when the database cannot be reached.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from batchfleet.outbox.delivery import (
    Attempt,
    Delivery,
    DeliveryFilter,
    DeliveryId,
    DueDelivery,
    Lane,
    OutboxDepth,
    Outcome,
    SigningSecret,
)


class OutboxStore(Protocol):
    """Deliveries, their log, and what webhooks are signed with."""

    def next_due_s(self) -> float | None:
        """Returns the seconds until `take_due` would return anything, None if nothing is pending: one cheap probe."""
        ...

    def take_due(
        self, limit: int, *, resend_s: float, without: Collection[Lane] = (), per_lane: int | None = None
    ) -> list[DueDelivery]:
        """Returns pending deliveries that are due, and moves their `due_at` on by `resend_s`.

        Of the oldest of those that are due, each lane's first come first, then each lane's second, `per_lane` at
        most. Lanes in `without` are passed by.

        Whoever takes them rings for each; a ring that is lost is thus repeated.
        """
        ...

    def begin(self, delivery: DeliveryId, *, lease_s: float) -> Delivery | None:
        """Takes a pending delivery for one attempt: epoch + 1, attempts + 1, not due again for `lease_s`.

        Returns None where it is not pending any more, another attempt runs (its lease is not over), or it waits for
        its next attempt: a ring that comes twice, or late, changes nothing.
        """
        ...

    def finish(self, delivery: DeliveryId, epoch: int, outcome: Outcome, *, retry_in_s: float | None) -> bool:
        """Ends an attempt: delivered where it has no error, pending again after `retry_in_s`, else failed.

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
        """Removes deliveries that were finished longer ago, with their log, and expired secrets.

        Returns how many deliveries that were.
        """
        ...

    def depths(self) -> list[OutboxDepth]:
        """Counts what is pending, by kind; a kind of which nothing is pending is not there."""
        ...

    def signing_secrets(self, tenant: str) -> list[SigningSecret]:
        """Returns those in use, newest first; makes the first one.

        Raises:
            SealedError: If one was sealed with a key that is not at hand.
        """
        ...

    def rotate_secret(self, tenant: str, *, keep_old_s: float) -> SigningSecret:
        """Makes a new secret; the old ones go on signing for `keep_old_s`, or for as long as they had left.

        No more than ten sign at once: of more, the oldest are forgotten.
        """
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
