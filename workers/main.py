"""Wires one worker process together, warms it up, and runs it until it is told to stop."""

import logging
import os
import time
from typing import Final

from batchfleet.broker.connect import connect_broker, connect_ring
from batchfleet.errors import BatchfleetError, StoreUnavailableError
from batchfleet.inference.memory import give_back_memory
from batchfleet.jobs.job import BootId, WorkerLease, WorkerState
from batchfleet.jobs.sql.store import SqlStore
from batchfleet.jobs.store import JobStore
from batchfleet.lifecycle import ParentWatch, ServiceThread, StopSignal
from batchfleet.logs import Action, OutageLog, said_by
from batchfleet.models.repository import ModelRepository
from batchfleet.objects.connect import connect_objects
from batchfleet.objects.s3_client import S3Terms
from batchfleet.profiles.sql import SqlProfiles
from batchfleet.pulse import Pulse, pulse_path
from batchfleet.results.connect import connect_blobs
from batchfleet.settings import EXIT_CONFIG, Settings, folder_of
from batchfleet.telemetry import Metrics, listen_for_scrapes, setup_metrics
from batchfleet.tracing import Tracer, setup_tracing
from workers.device import device_name
from workers.identity import worker_name
from workers.journal import Journal
from workers.keeper import Keeper, KeeperTerms, count_burial, start_beating
from workers.learn import Learning
from workers.lease import SharedLease
from workers.load import ModelLoader
from workers.namesakes import Namesakes
from workers.serving import Loaded, Serving
from workers.wiring import Parts, build_worker

logger = logging.getLogger(__name__)

EXIT_SICK: Final = 75
"""Exit code of a worker whose device is sick, or whose lease was lost: a restart may mend it (EX_TEMPFAIL)."""
_WATCH_S: Final = 1.0
_S3_TERMS: Final = S3Terms(attempts=2)
"""For results: one try must end well before a run timeout, and `workers.uploads` tries again itself."""
_STORE_WAIT_S: Final = 60.0
_LAST_LESSON_S: Final = 2.0
"""How long a drain waits for what was learned to be told: it is no loss where the database is away."""


def run_worker(settings: Settings, terms: KeeperTerms, shared: SharedLease, keeper: Keeper) -> int:
    """Runs a worker whose keeper was forked already; returns the exit code."""
    with StopSignal() as stop:
        ParentWatch(stop.request).start()
        try:
            metrics = setup_metrics(settings.metrics_dir)
            journal = Journal(terms.journal)
            # After the fork of the keeper: it starts a thread.
            tracer = setup_tracing(settings, "worker", terms.boot)
            parts = _connect(settings, metrics, tracer)
            listen_for_scrapes(metrics, settings.metrics_host, settings.metrics_port)
        except (BatchfleetError, OSError) as error:
            # A name in use, a folder that cannot be written, a URL that nobody knows: the settings are to blame.
            logger.critical("cannot start: %s", error, extra={"action": Action.START_REFUSED})
            shared.retire()
            keeper.release()
            return EXIT_CONFIG
        code = _serve(settings, terms, shared, keeper, journal, parts, stop)
        parts.close()
        keeper.release()
        journal.close()
    return code


def _connect(settings: Settings, metrics: Metrics, tracer: Tracer | None) -> Parts:
    return Parts(
        store=SqlStore(settings.database_url),
        broker=connect_broker(settings.broker_url, metrics=metrics),
        ring=connect_ring(settings.broker_url, metrics=metrics),
        blobs=connect_blobs(settings, _S3_TERMS),
        objects=connect_objects(settings),
        metrics=metrics,
        tracer=tracer,
    )


def _serve(
    settings: Settings,
    terms: KeeperTerms,
    shared: SharedLease,
    keeper: Keeper,
    journal: Journal,
    parts: Parts,
    stop: StopSignal,
) -> int:
    namesakes = Namesakes(worker_name(settings), terms.boot, settings.lease_ttl_s)
    if not _begin_boot(settings, terms, shared, keeper, journal, parts.store, parts.metrics, stop, namesakes):
        shared.retire()
        return 0 if stop.requested else EXIT_SICK
    profiles = SqlProfiles(settings.database_url)
    learning = Learning(profiles)
    serving = _serving(settings, learning)
    loaded = serving.load_all()
    give_back_memory()  # the warm-up's own
    if loaded is not Loaded.SOME:
        parts.store.retire(terms.boot)
        shared.retire()
        return EXIT_CONFIG if loaded is Loaded.NEVER else EXIT_SICK
    outcome = Outcome(stop)
    drain = build_worker(settings, terms, shared, journal, parts, serving, outcome.fail)
    drain.stages.start()
    learner = ServiceThread("learn", learning.run, wake=learning.wake)
    learner.start()
    pulse = Pulse(pulse_path(settings.state_dir, "worker", worker_name(settings)))
    show = _Show(shared, serving, pulse, terms.boot)
    show.once()
    while not stop.wait(_WATCH_S):
        show.once()
        namesakes.look(parts.store)
        if (why := _unfit(keeper, shared, settings)) is not None:
            logger.error("%s", why, extra={"action": Action.LEASE_LOST, "boot": terms.boot})
            outcome.fail()
    pulse.end()
    drain.run()
    learner.stop()
    learner.join(_LAST_LESSON_S)
    profiles.close()
    serving.close()
    return outcome.code


def _serving(settings: Settings, learning: Learning) -> Serving:
    loader = ModelLoader(settings)
    return Serving(
        ModelRepository(folder_of(settings.models_url)),
        loader,
        settings.worker_models,
        learning=learning,
        device=lambda model: device_name(model.provider, loader.threads),
    )


class _Show:
    """Shows by lease, pulse and log whether the worker can do anything: without a model it is not ready."""

    def __init__(self, shared: SharedLease, serving: Serving, pulse: Pulse, boot: BootId) -> None:
        self._shared = shared
        self._serving = serving
        self._pulse = pulse
        self._boot = boot

    def once(self) -> None:
        if not self._serves():
            self._pulse.idle()
            return
        if self._shared.state is WorkerState.STARTING:
            self._shared.state = WorkerState.READY
            extra = {"action": Action.PROCESS_READY, "boot": self._boot, "models": list(self._serving.names())}
            logger.info("worker is ready", extra=extra)
        self._pulse.beat()

    def _serves(self) -> bool:
        try:
            return self._serving.serves()
        except OSError as error:  # the repository is on a share that is away
            logger.warning("cannot look for models: %s", error, extra={"action": Action.MODEL_UNUSABLE})
            return False


def _unfit(keeper: Keeper, shared: SharedLease, settings: Settings) -> str | None:
    """Returns why this boot cannot go on, if it cannot: only a fresh one can then."""
    if shared.lost:
        return "the lease is lost: everything held is somebody else's by now"
    # A heartbeat may hang as long as a database call does; past two lifetimes of the lease the keeper is stuck.
    if not keeper.alive(shared, 2 * settings.lease_ttl_s):
        return "the lease keeper is gone or stuck: nothing would renew the lease"
    return None


class Outcome:
    """The exit code, and how a stage asks for the end."""

    def __init__(self, stop: StopSignal) -> None:
        self.code = 0
        self._stop = stop

    def fail(self) -> None:
        """Asks for a drain and an exit that the supervisor answers with a restart."""
        self.code = EXIT_SICK
        self._stop.request()


def _begin_boot(
    settings: Settings,
    terms: KeeperTerms,
    shared: SharedLease,
    keeper: Keeper,
    journal: Journal,
    store: JobStore,
    metrics: Metrics,
    stop: StopSignal,
    namesakes: Namesakes,
) -> bool:
    """Buries the predecessor, registers the lease, starts its keeper.

    Returns False if told to stop meanwhile, or if no database answered for a minute.
    """
    lease = WorkerLease(
        boot=terms.boot,
        name=worker_name(settings),
        pid=os.getpid(),
        state=WorkerState.STARTING,
        models=settings.worker_models,
    )
    outage = OutageLog(logger, "the database", Action.STORE_UNAVAILABLE)
    tries_until = time.monotonic() + _STORE_WAIT_S
    while not stop.requested:
        try:
            store.ping()  # an old schema may take a lease, and not the work
            if journal.predecessor is not None:
                count_burial(metrics, store.bury(journal.predecessor.boot, journal.predecessor.accused))
            sent = time.monotonic()
            store.register(lease)
        except StoreUnavailableError as error:
            if time.monotonic() > tries_until:
                logger.critical("no database: %s", error, extra={"action": Action.START_REFUSED, **said_by(error)})
                return False
            outage.failed(error)
            stop.wait(1.0)
        else:
            journal.begin_boot(terms.boot)
            shared.try_beat(sent)
            shared.beat(sent)
            start_beating(keeper)
            namesakes.look(store)
            return True
    return False
