"""Builds the stages of a worker out of its parts, and connects them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from batchfleet.broker.connect import has_broker
from batchfleet.broker.port import HintBroker, Ring
from batchfleet.jobs.job import JobId
from batchfleet.jobs.store import JobStore
from batchfleet.lifecycle import ServiceThread
from batchfleet.objects.port import ObjectStore
from batchfleet.results.blobs import BlobStore
from batchfleet.settings import Settings
from batchfleet.telemetry import Metrics
from batchfleet.tracing import Tracer
from workers.active import ActiveJob, ActiveJobs
from workers.assemble import Assembler
from workers.canary import Canary
from workers.drain import Drain, Stages
from workers.execute import Device
from workers.fetch import FETCH_THREADS, Fetcher, FetchLimits
from workers.identity import Identity, worker_name
from workers.journal import Journal
from workers.keeper import KeeperTerms
from workers.lease import Fence, SharedLease
from workers.messages import JobExpired, SettleMessage
from workers.prepare import Preparer
from workers.receive import Receiver, WindowRoom
from workers.serving import Serving
from workers.settle import Settler
from workers.spans import WorkerSpans
from workers.uploads import UPLOAD_THREADS, Uploads, UploadTerms


@dataclass(frozen=True, slots=True)
class Parts:
    """The outside world of one worker."""

    store: JobStore
    broker: HintBroker
    ring: Ring
    blobs: BlobStore
    objects: ObjectStore
    metrics: Metrics
    tracer: Tracer | None = None

    def close(self) -> None:
        """Gives up all connections."""
        for part in (self.ring, self.broker, self.store, self.blobs, self.objects):
            part.close()
        if self.tracer is not None:
            self.tracer.close()


def build_worker(
    settings: Settings,
    terms: KeeperTerms,
    shared: SharedLease,
    journal: Journal,
    parts: Parts,
    serving: Serving,
    on_unfit: Callable[[], None],
    upload_terms: UploadTerms | None = None,
) -> Drain:
    """Builds the stages, from the last to the first; nothing runs before `stages.start`.

    `on_unfit` is called once if the device is sick: the worker is then to drain and end. `upload_terms` say how long
    a blob store that is away is waited for.
    """
    active = ActiveJobs()
    fence = Fence(shared, settings.lease_ttl_s)
    identity = Identity(terms.boot, worker_name(settings))
    spans = None if parts.tracer is None else WorkerSpans(parts.tracer, identity)

    def discard(job_id: JobId) -> int:
        return assembler.discard(job_id)

    def settle(message: SettleMessage) -> None:
        settler.put(message)

    def look_again() -> None:
        settler.wake()

    def prepare(jobs: list[ActiveJob]) -> None:
        preparer.put(jobs)

    uploads = Uploads(parts.blobs, active, settle, look_again, upload_terms)
    settler = Settler(
        terms.boot,
        parts.store,
        uploads,
        parts.ring,
        active,
        discard,
        parts.metrics,
        settings.result_row_bytes,
        lambda: (assembler.backlog, room.capacity),
        spans,
    )

    def expired(jobs: Sequence[JobId]) -> None:
        for job_id in jobs:
            if (job := active.get(job_id)) is not None:
                settler.put(JobExpired(job))

    assembler = Assembler(serving.group_for, expired, fence)
    canary = Canary(settings.canary_share, active, journal, parts.metrics)
    device = Device(identity, serving, active, assembler, journal, settler.put, parts.metrics, on_unfit, canary, spans)
    room = WindowRoom(settings.window_items, settings.window_s, lambda: device.items_per_s)
    fetcher = Fetcher(
        parts.objects,
        active,
        FetchLimits(settings.max_body_bytes, settings.max_item_bytes, settings.window_items),
        lambda: room.capacity,
        prepare,
        settler.put,
    )
    preparer = Preparer(serving, assembler.add, settler.put, journal, parts.metrics, fetcher.unpack, spans)
    receiver = Receiver(
        terms.boot,
        parts.store,
        parts.broker,
        active,
        room,
        serving.names,
        fetcher.put,
        discard,
        settler.put,
        fence,
        parts.metrics,
        spans,
        rest=assembler.rest,
        hinted=has_broker(settings.broker_url),
    )
    stages = Stages(
        receive=ServiceThread("receive", receiver.run, wake=receiver.wake),
        fetch=tuple(ServiceThread(f"fetch-{n}", fetcher.run, wake=fetcher.stop) for n in range(FETCH_THREADS)),
        prepare=ServiceThread("prepare", preparer.run, wake=preparer.wake),
        assemble=ServiceThread("assemble", assembler.run),
        execute=ServiceThread("execute", device.run),
        settle=ServiceThread("settle", settler.run, wake=settler.wake),
        upload=tuple(ServiceThread(f"upload-{n}", uploads.run, wake=uploads.stop) for n in range(UPLOAD_THREADS)),
    )
    return Drain(terms.boot, parts.store, shared, stages, assembler, settler, active, settings.drain_s)
