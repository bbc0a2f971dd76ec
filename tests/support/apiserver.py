"""A real API process in miniature: uvicorn on a socket in a thread, a real SQLite store, and a stand-in worker."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx

from api.app import Api, create_app
from api.parts import Parts
from api.server import Server
from batchfleet.access.keys import DEFAULT_ROLES, Role, new_key
from batchfleet.access.sql import SqlAccess
from batchfleet.broker.announcer import Announcer
from batchfleet.broker.memory import MemoryBroker, MemoryHub, MemoryRing
from batchfleet.broker.port import HintBroker, Ring
from batchfleet.errors import StoreUnavailableError
from batchfleet.jobs.job import (
    LANES,
    JobRecord,
    Lane,
    NewJob,
    Submitted,
)
from batchfleet.jobs.sql.store import SqlStore
from batchfleet.jobs.states import JobState
from batchfleet.models.config import ModelConfig, Variant, render_config
from batchfleet.models.manifest import MANIFEST_FILE
from batchfleet.models.repository import ModelRepository
from batchfleet.outbox.sealing import sealer_of
from batchfleet.outbox.sql import SqlOutbox
from batchfleet.profiles.backlog import Backlog
from batchfleet.profiles.sql import SqlProfiles
from batchfleet.results.blobs import BlobStore
from batchfleet.results.local_blobs import LocalBlobs
from batchfleet.settings import Settings
from batchfleet.telemetry import Metrics
from batchfleet.tracing import setup_tracing
from migrations.run import upgrade
from tests.support.playedworker import PlayedWorker

MODEL = "tiny"
WAIT_S = 30.0
"""Bounds waits for signals; nothing is measured by it."""


def publish_model(root: Path, name: str = MODEL, version: str = "1", task: str = "embed") -> None:
    """Writes what the API reads of a model: its configuration; there are no weights."""
    folder = root / name / version
    folder.mkdir(parents=True)
    variant = Variant(name="fp32", precision="fp32", runtime="onnx", provider="cpu", file="model.onnx")
    config = ModelConfig(name=name, version=version, task=task, variants=(variant,))
    (folder / "model.toml").write_text(render_config(config))
    (folder / MANIFEST_FILE).write_text("{}")


def job_record(job_id: str, tenant: str = "default", state: JobState = JobState.QUEUED) -> JobRecord:
    """Returns a job as a look-up does."""
    return JobRecord(
        id=job_id, tenant=tenant, model="m", version="1", adapter="", lane=Lane.BULK, state=state, item_count=1,
        epoch=0, attempts=0, crashes=0, max_attempts=3, submitted_at=0.0, run_at=0.0, started_at=None,
        finished_at=None, expires_at=None,
    )  # fmt: skip


class FaultyStore(SqlStore):
    """A real store that can be told to be away, or to choke on certain jobs."""

    def __init__(self, database_url: str) -> None:
        super().__init__(database_url)
        self.down = False
        self.chokes_on: Callable[[NewJob], bool] = lambda _: False
        self.transactions: list[int] = []

    def submit(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        self._check()
        self.transactions.append(len(jobs))
        if any(self.chokes_on(job) for job in jobs):
            raise ValueError("a bad member")
        return super().submit(jobs)

    def look_up(self, *args: Any, **options: Any) -> Any:
        self._check()
        return super().look_up(*args, **options)

    def list_jobs(self, *args: Any, **options: Any) -> Any:
        self._check()
        return super().list_jobs(*args, **options)

    def cancel(self, *args: Any, **options: Any) -> Any:
        self._check()
        return super().cancel(*args, **options)

    def delete(self, *args: Any, **options: Any) -> Any:
        self._check()
        return super().delete(*args, **options)

    def workers(self) -> Any:
        self._check()
        return super().workers()

    def queue_depths(self) -> Any:
        self._check()
        return super().queue_depths()

    def ping(self) -> None:
        self._check()
        super().ping()

    def _check(self) -> None:
        if self.down:
            raise StoreUnavailableError("the database is away")


class _ThreadedServer(Server):
    """Says when it listens, and when it failed to."""

    def __init__(self, api: Api, settings: Settings) -> None:
        super().__init__(api, settings)
        self.decided = threading.Event()

    async def startup(self, sockets: Any = None) -> None:
        try:
            await super().startup(sockets=sockets)
        finally:
            self.decided.set()


@dataclass
class RunningApi:
    """One API process under test, with everything that it is made of.

    Attributes:
        client: Talks to it over a socket.
        waiting: Set whenever a request has begun to wait for the end of a job.
        idle: Set whenever the last waiter has gone.
    """

    api: Api
    parts: Parts
    store: FaultyStore
    worker: PlayedWorker
    client: httpx.Client
    server: Server
    hub: MemoryHub
    waiting: threading.Event = field(default_factory=threading.Event)
    idle: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.server.addresses()[0]

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.url.rpartition(":")[2])

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the process."""
        loop = self.api.services.waiters._loop
        assert loop is not None
        return loop

    def submit(self, **fields: Any) -> str:
        """Submits a job and returns its id."""
        answer = self.client.post("/v1/jobs", json={"model": MODEL, "inputs": ["a text"], **fields})
        assert answer.status_code == 202, answer.text
        public_id: str = answer.json()["id"]
        return public_id

    def key(self, tenant: str = "default", roles: Collection[Role] = DEFAULT_ROLES, ttl_s: float | None = None) -> str:
        """Makes an API key and returns it."""
        written = new_key()
        self.parts.access.create_key(written, tenant=tenant, name="test", roles=frozenset(roles), ttl_s=ttl_s)
        return written.text

    def await_waiting(self) -> None:
        """Returns when a request has begun to wait since the last call."""
        assert self.waiting.wait(WAIT_S)
        self.waiting.clear()

    def watch_waiters(self) -> Self:
        """Has the two events follow the waiters."""
        waiters = self.api.services.waiters
        until_ended, remove = waiters.until_ended, waiters._remove

        async def watched(*args: Any, **options: Any) -> Any:
            self.idle.clear()
            self.waiting.set()
            return await until_ended(*args, **options)

        def removed(*args: Any) -> None:
            remove(*args)
            if not len(waiters):
                self.idle.set()

        waiters.until_ended = watched  # type: ignore[method-assign]
        waiters._remove = removed  # type: ignore[assignment, method-assign]
        return self


@contextlib.contextmanager
def running_api(
    folder: Path,
    *,
    broker: HintBroker | None = None,
    ring: Ring | None = None,
    blobs: BlobStore | None = None,
    **settings: Any,
) -> Iterator[RunningApi]:
    """Runs an API process in this one; without a broker it gets one in memory.

    Args:
        folder: Where database, models and blobs go; a second process may share it.
        broker: What the announcer publishes to.
        ring: What it listens to.
        blobs: Where large results are; a folder by default.
        settings: Settings that differ from those of the tests.
    """
    hub = MemoryHub()
    stated = {"api_port": 0, "ring_lookup_s": 3600.0, "database_url": f"sqlite:///{folder}/batchfleet.db", **settings}
    configured = Settings(blob_url=f"file://{folder}/blobs", models_url=f"file://{folder}/models", **stated)
    if not (folder / "models").exists():
        publish_model(folder / "models")
        upgrade(configured.database_url)
    metrics = Metrics()
    store = FaultyStore(configured.database_url)
    profiles = SqlProfiles(configured.database_url)
    metrics.watch_queues(store.queue_depths, Backlog(profiles.rates, LANES))
    access = SqlAccess(configured.database_url)
    outbox = SqlOutbox(configured.database_url, sealer=sealer_of(configured))
    metrics.watch_outbox(outbox.depths)
    heard = ring or MemoryRing(hub)
    announcer = Announcer(broker or MemoryBroker(hub), metrics=metrics)
    announcer.start()
    parts = Parts(
        settings=configured,
        metrics=metrics,
        store=store,
        access=access,
        outbox=outbox,
        profiles=profiles,
        blobs=blobs or LocalBlobs(folder / "blobs"),
        repository=ModelRepository(folder / "models"),
        ring=heard,
        announcer=announcer,
        probe=MemoryBroker(hub),
        tracer=setup_tracing(configured, "api", "test"),
    )
    api = create_app(parts)
    server = _ThreadedServer(api, configured)
    thread = threading.Thread(target=server.run, name="uvicorn")
    thread.start()
    try:
        assert server.decided.wait(WAIT_S)
        assert server.started
        with httpx.Client(base_url=server.addresses()[0], timeout=WAIT_S) as client:
            worker = PlayedWorker(store, MemoryRing(hub) if ring is None else ring)
            yield RunningApi(api, parts, store, worker, client, server, hub).watch_waiters()
    finally:
        server.should_exit = True
        thread.join(WAIT_S)
        assert not thread.is_alive()
        announcer.close()
        heard.close()
        store.close()
        access.close()
        outbox.close()
        profiles.close()
        if parts.tracer is not None:
            parts.tracer.close()
