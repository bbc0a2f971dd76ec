"""Depth and age of the queues, counted in the database at each scrape."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

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


class QueueReader:
    """Depth, oldest age and backlog of the queues, straight from the truth.

    Args:
        read: Counts the queues.
        failures: Counts the scrapes at which that failed.
    """

    def __init__(self, read: ReadDepths, failures: Counter) -> None:
        self._read = read
        self._failures = failures

    def families(self, seconds_per_job: Mapping[str, float]) -> list[GaugeMetricFamily]:
        """Reads the queues. A database that is down costs these metrics, not the scrape.

        Args:
            seconds_per_job: Device-seconds that a job of a model costs; a model of which nothing is known has no
                backlog.
        """
        try:
            depths = self._read()
        except BatchfleetError:
            self._failures.inc()
            return []
        labels = ("model", "lane", "state")
        jobs = GaugeMetricFamily("batchfleet_queue_jobs", "Jobs queued and running.", labels=labels)
        ages = GaugeMetricFamily("batchfleet_queue_oldest_age_seconds", "Age of the oldest of them.", labels=labels)
        backlog = GaugeMetricFamily(
            "batchfleet_backlog_device_seconds",
            "Estimated device-seconds that the jobs queued and running will take.",
            labels=("model",),
        )
        waiting: dict[str, int] = {}
        for depth in depths:
            where = (depth.model, str(depth.lane), str(depth.state))
            jobs.add_metric(where, depth.jobs)
            ages.add_metric(where, depth.oldest_age_s)
            waiting[depth.model] = waiting.get(depth.model, 0) + depth.jobs
        for model, cost in seconds_per_job.items():
            backlog.add_metric((model,), cost * waiting.get(model, 0))
        return [jobs, ages, backlog]


class Fixed(Collector):
    """Metrics that have been collected already."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Returns them."""
        return self._families


def seconds_per_job(counted: Iterable[Metric]) -> dict[str, float]:
    """Returns, by model, the device-seconds that a job has cost on average since its workers started.

    A job's inputs are not looked at: the average serves as long as jobs of a model are alike over a day.
    """
    busy: dict[str, float] = {}
    ran: dict[str, float] = {}
    for family in counted:
        if family.name == "batchfleet_device_busy_seconds":
            _add_up(family, busy)
        elif family.name == "batchfleet_queue_wait_seconds":  # observed once a job, at the start of its pass
            _add_up(family, ran, suffix="_count")
    return {model: busy[model] / jobs for model, jobs in ran.items() if jobs and model in busy}


def _add_up(family: Metric, sums: dict[str, float], suffix: str = "_total") -> None:
    for sample in family.samples:
        if sample.name == family.name + suffix:
            model = sample.labels["model"]
            sums[model] = sums.get(model, 0.0) + sample.value
