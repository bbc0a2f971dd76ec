"""What traces cost a worker, in CPU microseconds a job: off, sampled out, and recorded (sending included).

`python benchmarks/tracing_cost.py`. The collector runs in a process of its own, so that only the sender is counted.
"""

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from batchfleet.batching.batch import Batch, ReleaseReason
from batchfleet.batching.item import Item
from batchfleet.jobs.job import ClaimedJob, Lane, OnItemError, new_job_id
from batchfleet.settings import Settings
from batchfleet.tracing import Tracer, setup_tracing
from tests.support.otlp import Collector
from workers.active import ActiveJob
from workers.identity import Identity
from workers.spans import WorkerSpans

JOBS = 20_000
BATCH = 32
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def claimed(traceparent: str | None) -> ActiveJob:
    """Returns a job as a claim returns it."""
    job = ClaimedJob(
        id=new_job_id(), epoch=1, model="m", version="1", adapter="", tenant="default", lane=Lane.BULK, inputs=b"[]",
        item_count=1, parameters=b"{}", on_item_error=OnItemError.FAIL, attempts=0, max_attempts=3, crashes=0,
        suspect=False, age_s=1.0, ttl_left_s=None, run_timeout_s=300.0, traceparent=traceparent,
    )  # fmt: skip
    return ActiveJob(job, 0.0, None)


def batch_of(jobs: list[ActiveJob]) -> Batch:
    """Returns a batch of one item a job."""
    items = tuple(Item(key, job.id, 0, 8, Lane.BULK, 0.0, None, "m", None) for key, job in enumerate(jobs))
    return Batch(items, 8, ReleaseReason.FULL)


def work(spans: WorkerSpans | None, jobs: list[ActiveJob]) -> None:
    """Does what the stages do for one batch, and nothing else of their work."""
    if spans is not None:
        spans.claimed(jobs)
        spans.prepared(jobs, time.time_ns())
        running = spans.batch_begins(jobs)
        if running is not None:
            running.pass_begins()
            running.end("b", batch_of(jobs), "m@1", None)
        spans.ended([(job, "succeeded", None) for job in jobs], time.time_ns())


def measure(tracer: Tracer | None, traceparent: str | None) -> tuple[float, float]:
    """Returns CPU microseconds a job: of the thread that works, and of the whole process until all is sent."""
    spans = None if tracer is None else WorkerSpans(tracer, Identity("boot", "w"))
    batches = [[claimed(traceparent) for _ in range(BATCH)] for _ in range(JOBS // BATCH)]
    whole, thread = time.process_time(), time.thread_time()
    for jobs in batches:
        work(spans, jobs)
        time.sleep(0.002)  # a pass: without it the queue of spans would overflow, as no real worker makes it
    thread = time.thread_time() - thread
    if tracer is not None:
        tracer.close(30)
    return thread / JOBS * 1e6, (time.process_time() - whole) / JOBS * 1e6


def collect(said: Connection) -> None:
    """Runs the collector until told to stop."""
    with Collector() as collector:
        said.send(collector.url)
        said.recv()
        said.send(len(collector.spans))


def main() -> None:
    """Measures and prints."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=collect, args=(there,))
    process.start()
    settings = Settings(otlp_endpoint=here.recv())
    make: Callable[[], Tracer | None] = lambda: setup_tracing(settings, "worker", "bench")  # noqa: E731
    for name, tracer, traceparent in (
        ("off", None, None),
        ("on, sampled out", make(), None),
        ("on, recorded", make(), TRACEPARENT),
    ):
        thread, whole = measure(tracer, traceparent)
        print(f"{name:16} {thread:7.2f} µs a job in the stages, {whole:7.2f} in all")
    here.send(None)
    print(f"{here.recv():,} of {JOBS * 4 + JOBS // BATCH:,} spans arrived")
    process.join()


if __name__ == "__main__":
    main()
