"""Builds the stages of a worker out of its parts, and connects them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from batchfleet.broker.port import HintBroker, Ring
from batchfleet.jobs.job import JobId
from batchfleet.jobs.store import JobStore
from batchfleet.lifecycle import ServiceThread
from batchfleet.results.blobs import BlobStore
from batchfleet.settings import Settings
from batchfleet.telemetry import Metrics
from workers.active import ActiveJobs
from workers.assemble import Assembler
from workers.drain import Drain, Stages
from workers.execute import Device
from workers.identity import Identity, worker_name
from workers.journal import Journal
from workers.keeper import KeeperTerms
from workers.lease import Fence, SharedLease
from workers.messages import JobExpired
from workers.prepare import Preparer
from workers.receive import Receiver, WindowRoom
from workers.serving import Serving
from workers.settle import Settler


@dataclass(frozen=True, slots=True)
class Parts:
    """The outside world of one worker."""

    store: JobStore
    broker: HintBroker
    ring: Ring
    blobs: BlobStore
    metrics: Metrics

    def close(self) -> None:
        """Gives up all connections."""
        for part in (self.ring, self.broker, self.store, self.blobs):
            part.close()


def build_worker(
    settings: Settings,
    terms: KeeperTerms,
    shared: SharedLease,
    journal: Journal,
    parts: Parts,
    serving: Serving,
    on_unfit: Callable[[], None],
) -> Drain:
    """Builds the stages, from the last to the first; nothing runs before `stages.start`.

    `on_unfit` is called once if the device is sick: the worker is then to drain and end.
    """
    active = ActiveJobs()
    fence = Fence(shared, settings.lease_ttl_s)

    def discard(job_id: JobId) -> int:
        return assembler.discard(job_id)

    settler = Settler(
        terms.boot, parts.store, parts.blobs, parts.ring, active, discard, parts.metrics, settings.result_row_bytes
    )

    def expired(jobs: Sequence[JobId]) -> None:
        for job_id in jobs:
            if (job := active.get(job_id)) is not None:
                settler.put(JobExpired(job))

    assembler = Assembler(serving.group_for, expired, fence)
    identity = Identity(terms.boot, worker_name(settings))
    device = Device(identity, serving, active, assembler, journal, settler.put, parts.metrics, on_unfit)
    preparer = Preparer(serving, assembler.add, settler.put, journal, parts.metrics)
    receiver = Receiver(
        terms.boot,
        parts.store,
        parts.broker,
        active,
        WindowRoom(settings.window_items, settings.window_s, lambda: device.items_per_s),
        serving.names,
        preparer.put,
        discard,
        settler.put,
        fence,
        parts.metrics,
    )
    stages = Stages(
        receive=ServiceThread("receive", receiver.run, wake=receiver.wake),
        prepare=ServiceThread("prepare", preparer.run, wake=preparer.wake),
        assemble=ServiceThread("assemble", assembler.run),
        execute=ServiceThread("execute", device.run),
        settle=ServiceThread("settle", settler.run, wake=settler.wake),
    )
    return Drain(terms.boot, parts.store, shared, stages, assembler, settler, active, settings.drain_s)
