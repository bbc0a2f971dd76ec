"""How much the outbox owes, counted in the database at each scrape."""

from collections.abc import Callable, Sequence
from typing import Protocol

from prometheus_client import Counter
from prometheus_client.core import GaugeMetricFamily

from batchfleet.errors import BatchfleetError


class PendingDeliveries(Protocol):
    """How much of a kind is pending; `batchfleet.outbox.delivery.OutboxDepth` is one."""

    @property
    def kind(self) -> str:
        """`webhook` or `output`."""
        ...

    @property
    def pending(self) -> int:
        """How many."""
        ...

    @property
    def oldest_age_s(self) -> float:
        """Age of the oldest one."""
        ...


ReadOutbox = Callable[[], Sequence[PendingDeliveries]]
"""Counts what is pending, at each scrape."""


class OutboxReader:
    """Depth and oldest age of the outbox.

    Args:
        read: Counts what is pending.
        failures: Counts the scrapes at which that failed.
    """

    def __init__(self, read: ReadOutbox, failures: Counter) -> None:
        self._read = read
        self._failures = failures

    def families(self) -> list[GaugeMetricFamily]:
        """Reads the outbox. A database that is down costs these metrics, not the scrape."""
        try:
            depths = self._read()
        except BatchfleetError:
            self._failures.inc()
            return []
        pending = GaugeMetricFamily("batchfleet_outbox_pending", "Deliveries that are owed.", labels=("kind",))
        ages = GaugeMetricFamily("batchfleet_outbox_oldest_age_seconds", "Age of the oldest of them.", labels=("kind",))
        for depth in depths:
            pending.add_metric((str(depth.kind),), depth.pending)
            ages.add_metric((str(depth.kind),), depth.oldest_age_s)
        return [pending, ages]
