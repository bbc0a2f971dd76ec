"""Execute: runs one batch after the other on the device; the only thread that touches it.

Before each pass the journal names the jobs on the device; after it, nobody. A failed pass is bisected in place, one
that is too large for the memory is halved (`batchfleet.inference.isolate`). If the device turns out to be sick, nobody
is convicted: the worker hands everything back and ends.
"""

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from prometheus_client import Histogram

from batchfleet.batching.batch import Batch
from batchfleet.batching.ceilings import Ceilings
from batchfleet.clock import Monotonic
from batchfleet.inference.executor import PassItem
from batchfleet.inference.isolate import run_isolated
from batchfleet.inference.registry import LoadedModel
from batchfleet.inference.task import ItemFault
from batchfleet.inference.tries import IsolatedRun, SickDeviceError
from batchfleet.jobs.job import JobId, new_job_id
from batchfleet.logs import Action, name_jobs
from batchfleet.telemetry import Metrics
from workers.active import ActiveJob, ActiveJobs
from workers.assemble import Assembler
from workers.canary import Canary, Witness
from workers.identity import Identity
from workers.journal import Journal
from workers.messages import PassDone, SettleMessage
from workers.pacing import idle_backlog_s
from workers.serving import PassKey, Serving
from workers.spans import WorkerSpans

logger = logging.getLogger(__name__)

_SMOOTHING = 0.2


class Device:
    """Owns the device and the journal. `run` is its thread.

    Args:
        on_sick: Told once if the device is sick; the worker is then to stop.
        canary: Looks at a few items again.
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
        canary: Canary,
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
        self._canary = canary
        self._spans = spans
        self._clock = clock
        self._waits: dict[tuple[str, str], Histogram] = {}
        self._told_ceilings: tuple[PassKey, Ceilings] | None = None
        self.items_per_s = 0.0
        """Items a second of device time, smoothed; 0 before the first pass."""

    def run(self, _stopping: threading.Event) -> None:
        """Runs batches until the assembler is closed: the body of the thread."""
        while True:
            idle_from = self._clock()
            batch = self._assembler.take()
            if batch is None:
                return
            idle_s = idle_backlog_s(idle_from, self._clock(), (item.arrived for item in batch.items))
            self._metrics.device_idle_backlog_seconds.inc(idle_s)
            if not self._run(batch):
                return
            self._canary.run(self._assembler.spare, self._assembler.idle)

    def _run(self, batch: Batch) -> bool:
        """Runs one batch; returns whether the device is fit for more."""
        started = self._clock()
        batch_id = new_job_id()
        jobs = self._start(batch, started)
        key = batch.items[0].pass_key
        assert isinstance(key, PassKey)  # noqa: S101 - the preparer makes no others
        model = self._serving.loaded(key.model)
        items = [PassItem(item.key, item.payload, item.parameters) for item in batch.items if item.job in jobs]
        owner: dict[Hashable, JobId] = {item.key: item.job for item in batch.items}
        spans = None if self._spans is None else self._spans.batch_begins(jobs.values())

        def before_pass(running: Sequence[PassItem]) -> None:
            if spans is not None:
                spans.pass_begins()
            self._journal.begin_pass(tuple({owner[item.key]: None for item in running}))

        done, sick = _run_isolated(model, items, before_pass)
        self._journal.end_pass()
        if spans is not None:
            spans.end(batch_id, batch, str(model.ref), sick)
        self._log(batch_id, batch, jobs, model, sick)
        seconds = self._clock() - started
        # First: somebody waits for the answers, and nobody for what is learned of them.
        self._report(batch_id, batch, jobs, model, done)
        self._learn(batch, jobs, key, model, done, seconds)
        if sick is not None:
            self._metrics.sick_devices.labels(model.ref.name).inc()
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
                flow = (job.claimed.model, job.claimed.lane)
                if (waits := self._waits.get(flow)) is None:
                    waits = self._waits[flow] = self._metrics.queue_wait.labels(*flow)
                waits.observe(max(0.0, now - job.arrived))
        return jobs

    def _report(
        self, batch_id: str, batch: Batch, jobs: Mapping[JobId, ActiveJob], model: LoadedModel, done: IsolatedRun
    ) -> None:
        """Tells the settler what came of the batch: one message, or one for each of several passes."""
        index_of: dict[Hashable, int] = {item.key: item.index for item in batch.items}
        job_of: dict[Hashable, ActiveJob] = {item.key: jobs[item.job] for item in batch.items if item.job in jobs}
        for number, tried, items in done.by_pass():
            outcomes = [(item, done.outcomes[item.key]) for item in items if item.key in done.outcomes]
            provenance = {
                "model_digest": model.digest,
                "variant": model.variant.name,
                "precision": model.variant.precision,
                "runtime": model.variant.runtime,
                "provider": model.provider,
                "batch": batch_id,
                "pass": number,
                "batch_items": len(tried.items),
                "padded_length": tried.padded_length,
                "released": batch.reason.value,
                "worker": self._identity.name,
                "boot": self._identity.boot,
            }
            told = tuple([(job_of[item.key], index_of[item.key], outcome) for item, outcome in outcomes])
            self._settle(PassDone(told, provenance))
            for place in self._canary.picks(len(outcomes), of=len(tried.items)):
                item, outcome = outcomes[place]
                if not isinstance(outcome, ItemFault):
                    witness = Witness(job_of[item.key], item, outcome, batch_id, len(tried.items))
                    self._canary.remember(model, witness)

    def _learn(
        self,
        batch: Batch,
        jobs: Mapping[JobId, ActiveJob],
        key: PassKey,
        model: LoadedModel,
        done: IsolatedRun,
        seconds: float,
    ) -> None:
        name = model.ref.name
        metrics = self._metrics
        metrics.batches_released.labels(name, batch.reason.value).inc()
        metrics.device_busy_seconds.labels(name).inc(seconds)
        # Items of jobs that were withdrawn did not run.
        live = [jobs[item.job] for item in batch.items if item.job in jobs]
        self._serving.worked(model.ref, len(live), _input_bytes(live), seconds)
        for stats in done.passes:
            metrics.batch_items.labels(name).observe(stats.count)
            metrics.pass_seconds.labels(name).observe(stats.seconds)
            metrics.tokens_real.labels(name).inc(stats.real_tokens)
            metrics.tokens_padded.labels(name).inc(stats.padded_tokens)
            cost = self._serving.observe(model.ref, stats.shape.rows, stats.padded_length, stats.seconds)
            self._assembler.update_cost(key, cost)
        if len(done.tries) > 1 or not done.passes:
            self._learn_trouble(model, done)
        # Other workers learn of memory as well, and what is known of it fades.
        ceilings = self._serving.ceilings(model.ref)
        if ceilings.known and (key, ceilings) != self._told_ceilings:
            self._told_ceilings = (key, ceilings)
            self._assembler.update_ceilings(key, ceilings)
        ran = sum(stats.count for stats in done.passes)
        if not ran:
            return
        rate = ran / max(seconds, 1e-6)
        self.items_per_s += (rate - self.items_per_s) * (_SMOOTHING if self.items_per_s else 1.0)

    def _learn_trouble(self, model: LoadedModel, done: IsolatedRun) -> None:
        """Counts what went wrong in a batch, and remembers what did not fit into memory."""
        name = model.ref.name
        self._metrics.bisects.labels(name).inc(done.failed_passes)
        self._metrics.output_mismatches.labels(name).inc(done.mismatches)
        self._metrics.non_finite_items.labels(name).inc(done.non_finite)
        for tried in done.too_large:
            self._metrics.oom_splits.labels(name).inc()
            self._serving.ran_out(model.ref, len(tried.items), tried.padded_length)


def _input_bytes(of_items: Iterable[ActiveJob]) -> float:
    """Returns the bytes of items, named by their jobs: an item counts for its share of its job's."""
    return sum(len(job.claimed.inputs) / job.claimed.item_count for job in of_items)


def _run_isolated(
    model: LoadedModel, items: Sequence[PassItem], before_pass: Callable[[Sequence[PassItem]], None]
) -> tuple[IsolatedRun, str | None]:
    """Runs the passes of one batch. A sick device, told by its second value, is an outcome here."""
    try:
        return run_isolated(model.executor, items, before_pass), None
    except SickDeviceError as error:
        return error.run, str(error)
