"""What the fleet says of itself: every metric, and (from `batchfleet.logs`) its log lines.

The metrics are defined here and nowhere else; `docs/reference/metrics.md` describes each. Labels are bounded:
model, lane, state, reason; never a tenant, a job or a worker.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol, Self

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess, values
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from batchfleet.errors import BatchfleetError
from batchfleet.logs import Action, mask_url, setup_logging

__all__ = [
    "METRICS_CONTENT_TYPE",
    "Action",
    "Depth",
    "Metrics",
    "ReadDepths",
    "Stopwatch",
    "forget_dead_processes",
    "mask_url",
    "process_alive",
    "setup_logging",
    "setup_metrics",
]

METRICS_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of `Metrics.render`."""

_MULTIPROCESS_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
_VALUE_FILES: Final = ("counter", "histogram", "gauge_livesum")
"""Kinds of value files that our metrics have: one a process each."""
_VALUE_FILE_BYTES: Final = 256 * 1024
_WAIT_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_STEP_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_SIZE_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


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


class Metrics:
    """All metrics of a process. One is made at start and handed to whoever counts.

    Args:
        registry: Where they are registered; None makes a fresh one, so that tests do not meet.
        metrics_dir: The folder given to `setup_metrics`; `render` then tells of all processes that share it.
    """

    def __init__(self, registry: CollectorRegistry | None = None, *, metrics_dir: Path | None = None) -> None:
        self._registry = CollectorRegistry() if registry is None else registry
        self._metrics_dir = metrics_dir
        self._queues: list[_QueueCollector] = []
        self._define_job_metrics()
        self._define_batch_metrics()
        self._define_hint_metrics()

    def _define_job_metrics(self) -> None:
        self.jobs_submitted = self._counter("jobs_submitted", "Jobs accepted.", "model", "lane")
        self.jobs_ended = self._counter("jobs_ended", "Jobs that ended, by state.", "model", "lane", "state")
        self.queue_wait = self._histogram(
            "queue_wait_seconds",
            "From submission (or run_at) to the start of the pass.",
            _WAIT_BUCKETS,
            "model",
            "lane",
        )
        self.claim_seconds = self._histogram("claim_seconds", "Duration of one claim.", _STEP_BUCKETS)
        self.prepare_seconds = self._histogram(
            "prepare_seconds", "Duration of one call that prepares claimed jobs.", _STEP_BUCKETS
        )
        self.settle_seconds = self._histogram("settle_seconds", "Duration of one settle.", _STEP_BUCKETS)
        self.stale_settles = self._counter("stale_settles", "Results discarded because their job had moved on.")
        self.rescued_jobs = self._counter(
            "rescued_jobs", "Jobs taken from dead workers, by what became of them.", "state"
        )
        self.dead_boots = self._counter("dead_boots", "Worker boots found dead.")
        self.worker_restarts = self._counter("worker_restarts", "Workers started again by their supervisor.", "reason")
        self.scrape_failures = self._counter("scrape_failures", "Scrapes that could not read the queues.")

    def _define_batch_metrics(self) -> None:
        self.batch_items = self._histogram("batch_items", "Items in one forward pass.", _SIZE_BUCKETS, "model")
        self.batches_released = self._counter(
            "batches_released", "Batches, by why they were formed.", "model", "reason"
        )
        self.pass_seconds = self._histogram("pass_seconds", "Duration of one forward pass.", _STEP_BUCKETS, "model")
        self.tokens_real = self._counter("tokens_real", "Tokens of items that were run.", "model")
        self.tokens_padded = self._counter("tokens_padded", "Tokens run, padding included.", "model")
        self.device_busy_seconds = self._counter("device_busy_seconds", "Seconds spent in forward passes.", "model")
        self.device_idle_backlog_seconds = self._counter(
            "device_idle_with_backlog_seconds", "Seconds in which the device idled while items were claimed."
        )
        self.bisects = self._counter("bisects", "Failed passes that were split to find the culprit.", "model")
        self.window_items = Gauge(
            "batchfleet_window_items",
            "Items that workers hold claimed.",
            registry=self._registry,
            multiprocess_mode="livesum",
        )

    def _define_hint_metrics(self) -> None:
        self.hints_published = self._counter("hints_published", "Hints put into the broker.")
        self.hints_pulled = self._counter("hints_pulled", "Hints taken from the broker.")
        self.hints_invalid = self._counter("hints_invalid", "Broker messages dropped because they are no hints.")
        self.relayed_jobs = self._counter(
            "relayed_jobs", "Jobs that the relay announced: delayed, retried, or nobody had claimed them in time."
        )
        self.announcements_dropped = self._counter("announcements_dropped", "Jobs not announced: the queue was full.")
        self.announcements_failed = self._counter("announcements_failed", "Jobs not announced: the broker was down.")
        self.rings_published = self._counter("rings_published", "Rings sent (one may name many jobs).")
        self.rings_failed = self._counter("rings_failed", "Rings not sent: the broker was down.")

    def count_rescue(self, *, requeued: int, ended: Iterable[str], dead_boots: int) -> None:
        """Counts what a rescue or a burial did: jobs queued again, states that others ended in, boots."""
        self.rescued_jobs.labels("queued").inc(requeued)
        for state in ended:
            self.rescued_jobs.labels(state).inc()
        self.dead_boots.inc(dead_boots)

    def watch_queues(self, read: ReadDepths) -> None:
        """Adds queue depth and oldest age, read from the database at each scrape; for one process of the fleet."""
        collector = _QueueCollector(read, self.scrape_failures)
        self._queues.append(collector)
        self._registry.register(collector)

    def render(self) -> bytes:
        """Returns all metrics in Prometheus' text format: of this process, or of all that share the folder."""
        if self._metrics_dir is None:
            return generate_latest(self._registry)
        forget_dead_processes(self._metrics_dir)
        # A fresh registry: the process's own one would report its own values a second time.
        merged = CollectorRegistry()
        multiprocess.MultiProcessCollector(merged, path=str(self._metrics_dir))  # type: ignore[no-untyped-call]
        for collector in self._queues:
            merged.register(collector)
        return generate_latest(merged)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"batchfleet_{name}", text, labels, registry=self._registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(f"batchfleet_{name}", text, labels, buckets=buckets, registry=self._registry)


class _QueueCollector(Collector):
    """Depth and oldest age of each queue, straight from the truth."""

    def __init__(self, read: ReadDepths, failures: Counter) -> None:
        self._read = read
        self._failures = failures

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Names its metrics without reading the database, as registration asks."""
        return self._families()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Reads the queues. A database that is down costs these two metrics, not the scrape."""
        try:
            depths = self._read()
        except BatchfleetError:
            self._failures.inc()
            return
        jobs, ages = self._families()
        for depth in depths:
            labels = (depth.model, str(depth.lane), str(depth.state))
            jobs.add_metric(labels, depth.jobs)
            ages.add_metric(labels, depth.oldest_age_s)
        yield jobs
        yield ages

    @staticmethod
    def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
        labels = ("model", "lane", "state")
        return (
            GaugeMetricFamily("batchfleet_queue_jobs", "Jobs queued and running.", labels=labels),
            GaugeMetricFamily("batchfleet_queue_oldest_age_seconds", "Age of the oldest of them.", labels=labels),
        )


def setup_metrics(metrics_dir: Path | None = None) -> Metrics:
    """Makes the process's metrics; once, at start, before any thread counts.

    With a folder, values live in files there (one set a process), and any process renders all of them.
    """
    if metrics_dir is None:
        return Metrics()
    metrics_dir.mkdir(parents=True, exist_ok=True)
    forget_dead_processes(metrics_dir)
    # The library looks at the variable when it is imported, which may have happened long before the settings
    # were read. Its value class is looked up at each metric's creation, so setting both here is enough.
    os.environ[_MULTIPROCESS_VARIABLE] = str(metrics_dir)
    for kind in _VALUE_FILES:
        _allocate(metrics_dir / f"{kind}_{os.getpid()}.db")
    values.ValueClass = values.MultiProcessValue()  # type: ignore[no-untyped-call]
    return Metrics(metrics_dir=metrics_dir)


def _allocate(path: Path) -> None:
    """Gives a value file its blocks before the library maps it: a sparse map on a full disk kills with SIGBUS.

    Raises:
        OSError: If the disk is full; the process then says so instead of dying later.
    """
    if hasattr(os, "posix_fallocate"):  # not on macOS
        with path.open("ab") as file:
            os.posix_fallocate(file.fileno(), 0, _VALUE_FILE_BYTES)


def forget_dead_processes(metrics_dir: Path) -> None:
    """Removes the gauges of processes that are gone. Their counters stay: totals must not shrink."""
    for path in metrics_dir.glob("gauge_live*_*.db"):
        pid = path.stem.rpartition("_")[2]
        if pid.isdecimal() and not process_alive(int(pid)):
            path.unlink(missing_ok=True)


def process_alive(pid: int) -> bool:
    """Returns whether a process of this machine runs; one that waits for its parent to reap it does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return not Path("/proc/self").exists()  # without /proc, the signal's word must do
    return not fields.rpartition(b")")[2].lstrip().startswith(b"Z")


class Stopwatch:
    """Measures one step on the monotonic clock: `with Stopwatch(metrics.claim_seconds): …`."""

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self.seconds = 0.0

    def __enter__(self) -> Self:
        self._start = time.perf_counter()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.seconds = time.perf_counter() - self._start
        self._histogram.observe(self.seconds)
