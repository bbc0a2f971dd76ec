"""Every metric is defined here; `docs/reference/metrics.md` describes each."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Self

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest, multiprocess
from prometheus_client.core import GaugeMetricFamily

from batchfleet import __version__
from batchfleet.telemetry.debts import OutboxReader, ReadOutbox
from batchfleet.telemetry.queues import Estimate, Fixed, QueueReader, ReadDepths, estimates_nothing
from batchfleet.telemetry.sharing import forget_dead_processes, share_values

METRICS_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of `Metrics.render`."""

_WAIT_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_HTTP_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_STEP_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_SIZE_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """All metrics of a process. One is made at start and handed to whoever counts.

    Args:
        registry: Where they are registered; None makes a fresh one, so that tests do not meet.
        metrics_dir: The folder given to `setup_metrics`; `render` then tells of all processes that share it.
    """

    def __init__(self, registry: CollectorRegistry | None = None, *, metrics_dir: Path | None = None) -> None:
        self._registry = CollectorRegistry() if registry is None else registry
        self._metrics_dir = metrics_dir
        self._queues: list[QueueReader] = []
        self._outboxes: list[OutboxReader] = []
        self._define_http_metrics()
        self._define_job_metrics()
        self._define_batch_metrics()
        self._define_hint_metrics()
        self._define_outbox_metrics()

    def _define_http_metrics(self) -> None:
        self.http_requests = self._counter(
            "http_requests", "HTTP requests, by the route's pattern.", "route", "method", "status"
        )
        self.http_request_seconds = self._histogram(
            "http_request_seconds",
            "From a request's head to the end of its answer; those that asked to wait (`?wait=`) apart.",
            _HTTP_BUCKETS,
            "route",
            "method",
            "wait",
        )

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
            "device_idle_with_backlog_seconds", "Seconds in which the device idled although work had been due before."
        )
        self._define_isolation_metrics()
        self.window_items = Gauge(
            "batchfleet_window_items",
            "Items that workers hold claimed.",
            registry=self._registry,
            multiprocess_mode="livesum",
        )

    def _define_isolation_metrics(self) -> None:
        self.bisects = self._counter("bisects", "Failed passes that were split to find the culprit.", "model")
        self.oom_splits = self._counter("oom_splits", "Passes that did not fit into memory and were split.", "model")
        self.non_finite_items = self._counter(
            "non_finite_items", "Items whose output held NaN or infinity: tried again alone.", "model"
        )
        self.output_mismatches = self._counter(
            "output_mismatches", "Passes whose outputs could not be matched to their items.", "model"
        )
        self.sick_devices = self._counter(
            "sick_devices", "Devices found sick: an item failed alone, and then the warm-up sample did.", "model"
        )
        self.canary_runs = self._counter(
            "canary_runs",
            "Items run again alone to see whether company matters, by what came of it.",
            "model",
            "outcome",
        )

    def _define_hint_metrics(self) -> None:
        self.hints_published = self._counter("hints_published", "Hints put into the broker.")
        self.hints_pulled = self._counter("hints_pulled", "Hints taken from the broker.")
        self.hints_invalid = self._counter("hints_invalid", "Broker messages dropped because they are no hints.")
        self.hints_found_lost = self._counter(
            "hints_found_lost", "Jobs that a worker found in the database though a hint should have told it of them."
        )
        self.relayed_jobs = self._counter(
            "relayed_jobs", "Jobs that the relay announced: delayed, retried, or nobody had claimed them in time."
        )
        self.announcements_dropped = self._counter("announcements_dropped", "Jobs not announced: the queue was full.")
        self.announcements_failed = self._counter("announcements_failed", "Jobs not announced: the broker was down.")
        self.rings_published = self._counter("rings_published", "Rings sent (one may name many jobs).")
        self.rings_failed = self._counter("rings_failed", "Rings not sent: the broker was down.")

    def _define_outbox_metrics(self) -> None:
        self.deliveries = self._counter(
            "deliveries", "Attempts of deliveries, by what became of them.", "kind", "outcome"
        )
        self.delivery_seconds = self._histogram(
            "delivery_attempt_seconds", "Duration of one attempt of a delivery.", _WAIT_BUCKETS, "kind"
        )
        self.purged = self._counter("purged", "What retention removed.", "what")
        self.orphans_removed = self._counter("orphans_removed", "Result blobs removed because no job names them.")

    def count_rescue(self, *, requeued: int, ended: Iterable[str], dead_boots: int) -> None:
        """Counts what a rescue or a burial did: jobs queued again, states that others ended in, boots."""
        self.rescued_jobs.labels("queued").inc(requeued)
        for state in ended:
            self.rescued_jobs.labels(state).inc()
        self.dead_boots.inc(dead_boots)

    def watch_queues(self, read: ReadDepths, estimate: Estimate = estimates_nothing) -> None:
        """Adds depth, oldest age and backlog of the queues, read from the database at each scrape."""
        self._queues.append(QueueReader(read, estimate, self.scrape_failures))

    def watch_outbox(self, read: ReadOutbox) -> None:
        """Adds depth and oldest age of the outbox, read from the database at each scrape."""
        self._outboxes.append(OutboxReader(read, self.scrape_failures))

    def render(self) -> bytes:
        """Returns all metrics in Prometheus' text format: of this process, or of all that share the folder."""
        counted = self._counted()
        read = [family for queues in self._queues for family in queues.families()]
        read += [family for outbox in self._outboxes for family in outbox.families()]
        shown = CollectorRegistry(auto_describe=False)
        shown.register(Fixed([*counted, *read, _build_info()]))
        return generate_latest(shown)

    def _counted(self) -> list[Metric]:
        """Returns what was counted here, or by all processes that share the folder."""
        if self._metrics_dir is None:
            return list(self._registry.collect())
        forget_dead_processes(self._metrics_dir)
        # A fresh registry: the process's own one would report its own values a second time.
        merged = CollectorRegistry()
        multiprocess.MultiProcessCollector(merged, path=str(self._metrics_dir))  # type: ignore[no-untyped-call]
        return list(merged.collect())

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"batchfleet_{name}", text, labels, registry=self._registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(f"batchfleet_{name}", text, labels, buckets=buckets, registry=self._registry)


def _build_info() -> Metric:
    """Values do not fit into the files that processes share, so it is made at each scrape."""
    info = GaugeMetricFamily(
        "batchfleet_build_info", "Always 1; its label says which version runs.", labels=["version"]
    )
    info.add_metric([__version__], 1)
    return info


def setup_metrics(metrics_dir: Path | None = None) -> Metrics:
    """Makes the process's metrics; once, at start, before any thread counts.

    With a folder, values live in files there (one set a process), and any process renders all of them.
    """
    if metrics_dir is None:
        return Metrics()
    share_values(metrics_dir)
    return Metrics(metrics_dir=metrics_dir)


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
