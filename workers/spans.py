"""What a worker tells of traced jobs: when they waited, were prepared, ran and were settled.

Only jobs whose submission was sampled have `ActiveJob.spans`; for all others, and where nobody asked for traces,
nothing happens here. While a job is under way some times are noted; its spans are told when it is settled.
"""

import time
from collections.abc import Iterable, Sequence

from batchfleet.batching.batch import Batch
from batchfleet.jobs.job import format_job_id
from batchfleet.tracing import SpanKind, Tracer
from workers.active import ActiveJob, JobSpans
from workers.identity import Identity


class BatchSpans:
    """The span of one batch while it runs, on the thread of the device.

    Args:
        tracer: Takes the spans.
        identity: Who runs it.
        traced: The jobs in it that are traced.
    """

    def __init__(self, tracer: Tracer, identity: Identity, traced: Sequence[JobSpans]) -> None:
        self._tracer = tracer
        self._identity = identity
        self._context = tracer.root()
        self._runs = [one.run for one in traced]
        self._began_ns = time.time_ns()
        self._passes: list[int] = []
        for one in traced:
            one.batches.append(self._context)

    def pass_begins(self) -> None:
        """Notes one pass; the one before it is over."""
        self._passes.append(time.time_ns())

    def end(self, batch_id: str, batch: Batch, model: str, error: str | None) -> None:
        """Tells of the batch, and of its passes where it took several."""
        now = time.time_ns()
        self._tracer.put(
            "batch",
            self._context,
            None,
            self._began_ns,
            now,
            attributes={
                "batchfleet.batch.id": batch_id,
                "batchfleet.batch.items": len(batch.items),
                "batchfleet.batch.padded_length": batch.padded_length,
                "batchfleet.batch.released": batch.reason.value,
                "batchfleet.batch.passes": len(self._passes),
                "batchfleet.model": model,
                "batchfleet.worker": self._identity.name,
                "batchfleet.boot": self._identity.boot,
            },
            links=self._runs,
            error=error,
        )
        if len(self._passes) > 1:
            for began, ended in zip(self._passes, [*self._passes[1:], now], strict=True):
                self._tracer.put("pass", self._tracer.child(self._context), self._context, began, ended)


class WorkerSpans:
    """Tells of one worker's jobs. Thread-safe: each job is touched by the stage that has it.

    Args:
        tracer: Takes the spans.
        identity: Whose they are.
    """

    def __init__(self, tracer: Tracer, identity: Identity) -> None:
        self._tracer = tracer
        self._identity = identity

    def claimed(self, jobs: Iterable[ActiveJob]) -> None:
        """Notes the claim of those that are traced."""
        now = time.time_ns()
        for job in jobs:
            parent = None if job.claimed.traceparent is None else self._tracer.follow(job.claimed.traceparent)
            if parent is not None:
                job.spans = JobSpans(self._tracer.child(parent), parent, now)

    @staticmethod
    def prepared(jobs: Iterable[ActiveJob], began_ns: int) -> None:
        """Notes a call that prepared jobs, which began at `began_ns` and is over now."""
        now = time.time_ns()
        for job in jobs:
            if job.spans is not None:
                job.spans.prepared = (began_ns, now)

    def batch_begins(self, jobs: Iterable[ActiveJob]) -> BatchSpans | None:
        """Links those of a batch that are traced with it; None if none is."""
        traced = [job.spans for job in jobs if job.spans is not None]
        return BatchSpans(self._tracer, self._identity, traced) if traced else None

    def ended(self, jobs: Sequence[tuple[ActiveJob, str, str | None]], began_ns: int) -> None:
        """Tells of jobs that this worker no longer holds.

        Args:
            jobs: Each with what became of it (a state, `stale`, `handed_back`) and its error's code, if any.
            began_ns: When the transaction began that said so.
        """
        now = time.time_ns()
        for job, outcome, error in jobs:
            if job.spans is not None:
                self._tell(job, job.spans, outcome, error, (began_ns, now))

    def _tell(self, job: ActiveJob, spans: JobSpans, outcome: str, error: str | None, settle: tuple[int, int]) -> None:
        tracer, claimed = self._tracer, job.claimed
        queued = spans.claimed_ns - int(claimed.age_s * 1e9)
        tracer.put("queue", tracer.child(spans.parent), spans.parent, queued, spans.claimed_ns)
        tracer.put(
            "run",
            spans.run,
            spans.parent,
            spans.claimed_ns,
            settle[1],
            kind=SpanKind.CONSUMER,
            # Few: to write them down is most of what a trace costs. Who ran it is said once, of the process.
            attributes={
                "batchfleet.job.id": format_job_id(claimed.id),
                "batchfleet.job.epoch": claimed.epoch,
                "batchfleet.job.crashes": claimed.crashes,
                "batchfleet.job.outcome": outcome,
                "batchfleet.model": claimed.model,
                "batchfleet.lane": claimed.lane.value,
                "batchfleet.tenant": claimed.tenant,
            },
            links=spans.batches,
            error=error,
        )
        if spans.prepared is not None:
            tracer.put("prepare", tracer.child(spans.run), spans.run, *spans.prepared)
        tracer.put("settle", tracer.child(spans.run), spans.run, *settle)
