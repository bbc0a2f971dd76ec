"""A whole worker inside the test's process: real threads and stages, a store in memory, a session of the test's."""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import msgspec

from batchfleet.broker.hint import group_hints
from batchfleet.broker.memory import MemoryBroker, MemoryHub, MemoryRing
from batchfleet.inference.one_shot import OneShotExecutor
from batchfleet.inference.registry import LoadedModel
from batchfleet.inference.runtime import Session
from batchfleet.jobs.job import (
    NO_LINKS,
    Announcement,
    JobId,
    JobLinks,
    JobRecord,
    Lane,
    NewJob,
    OnItemError,
    WorkerLease,
    WorkerState,
    new_job_id,
)
from batchfleet.jobs.memory import MemoryStore
from batchfleet.jobs.states import JobState
from batchfleet.jobs.store import JobStore
from batchfleet.models.config import Limits
from batchfleet.models.repository import ModelFiles, ModelRef, ModelRepository
from batchfleet.objects.connect import connect_objects
from batchfleet.objects.s3_client import S3Terms
from batchfleet.profiles.memory import MemoryProfiles
from batchfleet.results.codec import decode
from batchfleet.results.connect import connect_blobs
from batchfleet.settings import Settings
from batchfleet.telemetry import Metrics
from batchfleet.tracing import Tracer
from tests.support.models import build_tiny_encoder
from tests.support.sessions import LIMITS, NumberTask, StubSession
from workers.journal import Journal
from workers.keeper import KeeperTerms
from workers.learn import Learning
from workers.lease import SharedLease
from workers.serving import Serving
from workers.uploads import UploadTerms
from workers.wiring import Parts, build_worker

WAIT_S = 20.0


class Waiter:
    """Collects the ids that the ring tells of, and lets a test wait for some."""

    def __init__(self) -> None:
        self._rung: set[JobId] = set()
        self._changed = threading.Condition()

    def __call__(self, ids: Sequence[JobId]) -> None:
        with self._changed:
            self._rung.update(ids)
            self._changed.notify_all()

    def wait(self, ids: Sequence[JobId]) -> None:
        """Returns when all of them were told of."""
        wanted = set(ids)
        with self._changed:
            assert self._changed.wait_for(lambda: wanted <= self._rung, WAIT_S), wanted - self._rung


class Pipeline:
    """One worker over a store in memory and a stub session that doubles numbers."""

    def __init__(
        self,
        folder: Path,
        session: Session | None = None,
        *,
        limits: Limits = LIMITS,
        store: JobStore | None = None,
        task: NumberTask | None = None,
        tracer: Tracer | None = None,
        s3_terms: S3Terms | None = None,
        upload_terms: UploadTerms | None = None,
        model: ModelRef | None = None,
        **settings: object,
    ) -> None:
        self.session = StubSession() if session is None else session
        self.store: JobStore = MemoryStore() if store is None else store
        self.hub = MemoryHub()
        self.shared = SharedLease()
        self.metrics = Metrics()
        self.unfit = threading.Event()
        self.told = Waiter()
        self.model = build_tiny_encoder(folder / "models") if model is None else model
        self.boot = new_job_id()
        defaults: dict[str, object] = {
            "state_dir": folder / "state",
            "worker_name": "w",
            "blob_url": (folder / "blobs").as_uri(),
            "canary_share": 0.0,  # a second run of an item is what only its own tests expect
        }
        self.settings = Settings(**(defaults | settings))  # type: ignore[arg-type]
        self.blobs = connect_blobs(self.settings, s3_terms)
        self.objects = connect_objects(self.settings, s3_terms)
        self._limits = limits
        self._task = NumberTask() if task is None else task
        self._ring = MemoryRing(self.hub)
        self._ring.listen(self.told)
        self._broker = MemoryBroker(self.hub)
        self.journal = Journal(folder / "w.journal")
        self.journal.begin_boot(self.boot)
        self.profiles = MemoryProfiles()
        self.learning = Learning(self.profiles)
        serving = Serving(ModelRepository(folder / "models"), self._load, learning=self.learning)
        terms = KeeperTerms(self.boot, "sqlite:///none", folder / "w.journal", 5.0)
        parts = Parts(
            self.store,
            MemoryBroker(self.hub),
            MemoryRing(self.hub),
            self.blobs,
            self.objects,
            self.metrics,
            tracer,
        )
        self.drain = build_worker(
            self.settings, terms, self.shared, self.journal, parts, serving, self.unfit.set, upload_terms
        )

    def start(self) -> Self:
        """Registers and starts the stages."""
        self.store.register(WorkerLease(boot=self.boot, name="w", pid=1, state=WorkerState.READY))
        self.shared.beat(float("inf"))
        self.drain.stages.start()
        return self

    def submit(
        self,
        *jobs: Sequence[float] | str,
        lane: Lane = Lane.BULK,
        on_item_error: OnItemError = OnItemError.FAIL,
        parameters: bytes = b"{}",
        ttl_s: float | None = None,
        max_attempts: int = 1,
        run_timeout_s: float = 300.0,
        version: str | None = None,
        announce: bool = True,
        traceparent: str | None = None,
    ) -> list[JobId]:
        """Submits one job for each sequence of numbers, or URI of an object, and announces them together."""
        made = [
            NewJob(
                id=new_job_id(),
                model=self.model.name,
                version=version or self.model.version,
                inputs=b"[]" if isinstance(values, str) else msgspec.json.encode(list(values)),
                item_count=1 if isinstance(values, str) else len(values),
                links=JobLinks(input_uri=values) if isinstance(values, str) else NO_LINKS,
                lane=lane,
                parameters=parameters,
                on_item_error=on_item_error,
                ttl_s=ttl_s,
                max_attempts=max_attempts,
                run_timeout_s=run_timeout_s,
                traceparent=traceparent,
            )
            for values in jobs
        ]
        self.store.submit(made)
        if announce:
            self.announce(made)
        return [job.id for job in made]

    def announce(self, jobs: Sequence[NewJob]) -> None:
        """Rings the doorbell for jobs."""
        told = [Announcement(job.id, job.model, job.lane, job.tenant, job.input_bytes, job.item_count) for job in jobs]
        self._broker.publish(group_hints(told))

    def finish(self, ids: Sequence[JobId]) -> list[JobRecord]:
        """Waits until all have ended and returns them, in order."""
        self.told.wait(ids)
        return self.records(ids)

    def wait_for_epoch(self, job_id: JobId, epoch: int) -> None:
        """Waits until a job was claimed so often; nobody rings for that."""
        until = time.monotonic() + WAIT_S
        while self.records([job_id])[0].epoch < epoch:
            assert time.monotonic() < until, self.records([job_id])
            time.sleep(0.01)

    def wait_until_waiting(self, items: int) -> None:
        """Waits until just so many items wait for the device, prepared; nobody rings for that."""
        until = time.monotonic() + WAIT_S
        while self.drain.assembler.backlog != items:
            assert time.monotonic() < until, self.drain.assembler.backlog
            time.sleep(0.005)

    def records(self, ids: Sequence[JobId]) -> list[JobRecord]:
        """Returns jobs as they are now, in order."""
        found = {record.id: record for record in self.store.look_up(ids, with_results=True)}
        return [found[job_id] for job_id in ids]

    def values(self, record: JobRecord) -> list[float | None]:
        """Returns the numbers of a result, None where an item has an error."""
        assert record.state is JobState.SUCCEEDED, record
        assert record.result is not None
        data = record.result.data
        if data is None:
            assert record.result.blob_key is not None
            data = self.blobs.get(record.result.blob_key)
        return [None if row is None else float(row[0]) for row in decode(record.result.format, data).values]

    def close(self) -> None:
        """Stops the worker as a drain does."""
        self.drain.run()
        self.journal.close()
        self._ring.close()
        self.blobs.close()
        self.objects.close()

    def _load(self, files: ModelFiles) -> LoadedModel:
        task = self._task
        return LoadedModel(
            ref=ModelRef(files.ref.name, files.ref.version),
            digest=files.digest,
            variant=files.config.variants[0],
            provider="cpu",
            executor=OneShotExecutor(task, self.session, self._limits),
            task=task,
            limits=self._limits,
        )


class Gate:
    """Holds a pass on the device until the test opens it: `StubSession(gate)`."""

    def __init__(self, holds: Callable[[list[float]], bool]) -> None:
        self._holds = holds
        self.entered = threading.Event()
        self.open = threading.Event()

    def __call__(self, values: list[float]) -> None:
        if self._holds(values):
            self.entered.set()
            assert self.open.wait(WAIT_S)
