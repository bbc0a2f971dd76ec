"""Execute: runs one batch after the other on the device; the only thread that touches it.

Before each pass the journal names the jobs on the device; after it, nobody. A failed pass is bisected in place
(`batchfleet.inference.isolate`). If the device turns out to be sick, nobody is convicted: the worker hands
everything back and ends.
"""

import logging
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence

from batchfleet.batching.batch import Batch
from batchfleet.clock import Monotonic
from batchfleet.inference.executor import Outcome, PassItem
from batchfleet.inference.isolate import IsolatedRun, SickDeviceError, run_isolated
from batchfleet.inference.registry import LoadedModel
from batchfleet.jobs.job import JobId, new_job_id
from batchfleet.logs import Action, name_jobs
from batchfleet.telemetry import Metrics
from workers.active import ActiveJob, ActiveJobs
from workers.assemble import Assembler
from workers.identity import Identity
from workers.journal import Journal
from workers.messages import PassDone, SettleMessage
from workers.serving import PassKey, Serving
from workers.spans import WorkerSpans

logger = logging.getLogger(__name__)

_SMOOTHING = 0.2


class Device:
    """Owns the device and the journal. `run` is its thread.

    Args:
        on_sick: Told once if the device is sick; the worker is then to stop.
        spans: Told of batches, where anything is traced.
    """

    def __init__(
        self,
        identity: Identity,
        serving: Serving,
        active: ActiveJobs,
        assembler: Assembler,
        journal: Journal,
        settle: Callable[[SettleMessage], None],
        metrics: Metrics,
        on_sick: Callable[[], None],
        spans: WorkerSpans | None = None,
        clock: Monotonic = time.monotonic,
    ) -> None:
        self._identity = identity
        self._serving = serving
        self._active = active
        self._assembler = assembler
        self._journal = journal
        self._settle = settle
        self._metrics = metrics
        self._on_sick = on_sick
        self._spans = spans
        self._clock = clock
        self.items_per_s = 0.0
        """Items a second of device time, smoothed; 0 before the first pass."""

    def run(self, _stopping: threading.Event) -> None:
        """Runs batches until the assembler is closed: the body of the thread."""
        while True:
            idle_from, backlog = self._clock(), self._assembler.backlog
            batch = self._assembler.take()
            if backlog:
                self._metrics.device_idle_backlog_seconds.inc(max(0.0, self._clock() - idle_from))
            if batch is None or not self._run(batch):
                return

    def _run(self, batch: Batch) -> bool:
        """Runs one batch; returns whether the device is fit for more."""
        started = self._clock()
        batch_id = new_job_id()
        jobs = self._start(batch, started)
        key = batch.items[0].pass_key
        assert isinstance(key, PassKey)  # noqa: S101 - the preparer makes no others
        model = self._serving.loaded(key.model)
        items = [PassItem(item.key, item.payload, item.parameters) for item in batch.items if item.job in jobs]
        job_of: dict[Hashable, JobId] = {item.key: item.job for item in batch.items}
        spans = None if self._spans is None else self._spans.batch_begins(jobs.values())

        def before_pass(running: Sequence[PassItem]) -> None:
            if spans is not None:
                spans.pass_begins()
            self._journal.begin_pass(tuple(dict.fromkeys(job_of[item.key] for item in running)))

        done = _run_isolated(model, items, before_pass)
        self._journal.end_pass()
        sick = str(done) if isinstance(done, SickDeviceError) else None
        if spans is not None:
            spans.end(batch_id, batch, str(model.ref), sick)
        self._log(batch_id, batch, jobs, model, sick)
        if isinstance(done, IsolatedRun):
            self._learn(batch, key, model, done, self._clock() - started)
        self._report(batch_id, batch, jobs, model, done.outcomes)
        if sick is not None:
            self._on_sick()
        return sick is None

    def _log(
        self, batch_id: str, batch: Batch, jobs: Mapping[JobId, ActiveJob], model: LoadedModel, sick: str | None
    ) -> None:
        level = logging.DEBUG if sick is None else logging.CRITICAL
        if logger.isEnabledFor(level):
            extra = {
                "action": Action.PASS_RUN if sick is None else Action.DEVICE_SICK,
                "batch": batch_id,
                "items": len(batch.items),
                "model": str(model.ref),
                "boot": self._identity.boot,
                "jobs": name_jobs(jobs),
            }
            told = "ran a batch" if sick is None else f"the device is sick: {sick}"
            logger.log(level, "%s", told, extra=extra)

    def _start(self, batch: Batch, now: float) -> dict[JobId, ActiveJob]:
        jobs = {job_id: job for job_id in batch.jobs if (job := self._active.get(job_id)) is not None}
        for job in jobs.values():
            if not job.started:
                job.started = True
                waits = self._metrics.queue_wait.labels(job.claimed.model, job.claimed.lane)
                waits.observe(max(0.0, now - job.arrived))
        return jobs

    def _report(
        self,
        batch_id: str,
        batch: Batch,
        jobs: dict[JobId, ActiveJob],
        model: LoadedModel,
        outcomes: Mapping[Hashable, Outcome],
    ) -> None:
        found: list[tuple[ActiveJob, int, Outcome]] = []
        for item in batch.items:
            outcome = outcomes.get(item.key)
            job = jobs.get(item.job)
            if outcome is not None and job is not None:
                found.append((job, item.index, outcome))
        provenance = {
            "model_digest": model.digest,
            "variant": model.variant.name,
            "precision": model.variant.precision,
            "runtime": model.variant.runtime,
            "provider": model.provider,
            "batch": batch_id,
            "batch_items": len(batch.items),
            "padded_length": batch.padded_length,
            "released": batch.reason.value,
            "worker": self._identity.name,
            "boot": self._identity.boot,
        }
        self._settle(PassDone(tuple(found), provenance))

    def _learn(self, batch: Batch, key: PassKey, model: LoadedModel, done: IsolatedRun, seconds: float) -> None:
        name = model.ref.name
        metrics = self._metrics
        metrics.batches_released.labels(name, batch.reason.value).inc()
        if done.failed_passes:
            metrics.bisects.labels(name).inc(done.failed_passes)
        for stats in done.passes:
            metrics.batch_items.labels(name).observe(stats.count)
            metrics.pass_seconds.labels(name).observe(stats.seconds)
            metrics.tokens_real.labels(name).inc(stats.real_tokens)
            metrics.tokens_padded.labels(name).inc(stats.padded_tokens)
            cost = self._serving.observe(model.ref, stats.shape.rows, stats.padded_length, stats.seconds)
            self._assembler.update_cost(key, cost)
        metrics.device_busy_seconds.labels(name).inc(seconds)
        ran = sum(stats.count for stats in done.passes)
        if not ran:
            return
        rate = ran / max(seconds, 1e-6)
        self.items_per_s += (rate - self.items_per_s) * (_SMOOTHING if self.items_per_s else 1.0)


def _run_isolated(
    model: LoadedModel, items: Sequence[PassItem], before_pass: Callable[[Sequence[PassItem]], None]
) -> IsolatedRun | SickDeviceError:
    """Runs the passes of one batch. A sick device is an outcome here: some items may have finished before."""
    try:
        return run_isolated(model.executor, items, before_pass)
    except SickDeviceError as error:
        return error
