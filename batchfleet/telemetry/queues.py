"""Depth and age of the queues, counted in the database at each scrape."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from prometheus_client import Counter, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from batchfleet.errors import BatchfleetError


class Depth(Protocol):
    """How deep one queue is; `batchfleet.jobs.job.QueueDepth` is one."""

    @property
    def model(self) -> str:
        """Name of the model."""
        ...

    @property
    def lane(self) -> str:
        """Service class."""
        ...

    @property
    def state(self) -> str:
        """State that was counted."""
        ...

    @property
    def jobs(self) -> int:
        """How many."""
        ...

    @property
    def oldest_age_s(self) -> float:
        """Age of the oldest one."""
        ...


ReadDepths = Callable[[], Sequence[Depth]]
"""Counts the queues in the database, at each scrape."""

Estimate = Callable[[Sequence[Any]], Mapping[tuple[str, str], float]]
"""Returns the device-seconds that wait, by (model, lane), given what was counted."""


def estimates_nothing(_depths: Sequence[Any]) -> Mapping[tuple[str, str], float]:
    """The estimate where nothing is known of what work costs."""
    return {}


class QueueReader:
    """Depth, oldest age and backlog of the queues, straight from the truth.

    Args:
        read: Counts the queues.
        estimate: Says what it costs to run what is in them.
        failures: Counts the scrapes at which that failed.
    """

    def __init__(self, read: ReadDepths, estimate: Estimate, failures: Counter) -> None:
        self._read = read
        self._estimate = estimate
        self._failures = failures

    def families(self) -> list[GaugeMetricFamily]:
        """Reads the queues. A database that is down costs these metrics, not the scrape."""
        try:
            depths = self._read()
            seconds = self._estimate(depths)
        except BatchfleetError:
            self._failures.inc()
            return []
        labels = ("model", "lane", "state")
        jobs = GaugeMetricFamily("batchfleet_queue_jobs", "Jobs queued and running.", labels=labels)
        ages = GaugeMetricFamily("batchfleet_queue_oldest_age_seconds", "Age of the oldest of them.", labels=labels)
        backlog = GaugeMetricFamily(
            "batchfleet_backlog_device_seconds",
            "Estimated device-seconds that the jobs queued and running will take.",
            labels=("model", "lane"),
        )
        for depth in depths:
            where = (depth.model, str(depth.lane), str(depth.state))
            jobs.add_metric(where, depth.jobs)
            ages.add_metric(where, depth.oldest_age_s)
        for place, waiting in seconds.items():
            backlog.add_metric(place, waiting)
        return [jobs, ages, backlog]


class Fixed(Collector):
    """Metrics that have been collected already."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Returns them."""
        return self._families
