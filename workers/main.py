"""Wires one worker process together, warms it up, and runs it until it is told to stop."""

import logging
import os
import time
from typing import Final

from batchfleet.broker.connect import connect_broker, connect_ring
from batchfleet.errors import BatchfleetError, StoreUnavailableError
from batchfleet.inference.registry import LoadedModel, load_executor
from batchfleet.inference.select import choose_variant
from batchfleet.jobs.job import WorkerLease, WorkerState
from batchfleet.jobs.sql.store import SqlStore
from batchfleet.jobs.store import JobStore
from batchfleet.lifecycle import ParentWatch, StopSignal
from batchfleet.logs import Action
from batchfleet.models.repository import ModelFiles, ModelRepository
from batchfleet.results.local_blobs import LocalBlobs
from batchfleet.settings import EXIT_CONFIG, Settings, folder_of
from batchfleet.telemetry import Metrics, setup_metrics
from workers.identity import worker_name
from workers.journal import Journal
from workers.keeper import Keeper, KeeperTerms, count_burial, start_beating
from workers.lease import SharedLease
from workers.serving import Loaded, Serving
from workers.wiring import Parts, build_worker

logger = logging.getLogger(__name__)

EXIT_SICK: Final = 75
"""Exit code of a worker whose device is sick, or whose lease was lost: a restart may mend it (EX_TEMPFAIL)."""
_WATCH_S: Final = 1.0
_STORE_WAIT_S: Final = 60.0


def run_worker(settings: Settings, terms: KeeperTerms, shared: SharedLease, keeper: Keeper) -> int:
    """Runs a worker whose keeper was forked already; returns the exit code."""
    with StopSignal() as stop:
        ParentWatch(stop.request).start()
        try:
            metrics = setup_metrics(settings.metrics_dir)
            journal = Journal(terms.journal)
            parts = _connect(settings, metrics)
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


def _connect(settings: Settings, metrics: Metrics) -> Parts:
    return Parts(
        store=SqlStore(settings.database_url),
        broker=connect_broker(settings.broker_url, metrics=metrics),
        ring=connect_ring(settings.broker_url, metrics=metrics),
        blobs=LocalBlobs(folder_of(settings.blob_url)),
        metrics=metrics,
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
    if not _begin_boot(settings, terms, shared, keeper, journal, parts.store, parts.metrics, stop):
        shared.retire()
        return 0 if stop.requested else EXIT_SICK
    serving = Serving(ModelRepository(folder_of(settings.models_url)), _loader(settings), settings.worker_models)
    loaded = serving.load_all()
    if loaded is not Loaded.SOME:
        parts.store.retire(terms.boot)
        shared.retire()
        return EXIT_CONFIG if loaded is Loaded.NEVER else EXIT_SICK
    outcome = Outcome(stop)
    drain = build_worker(settings, terms, shared, journal, parts, serving, outcome.fail)
    drain.stages.start()
    shared.state = WorkerState.READY
    logger.info(
        "worker is ready", extra={"action": Action.PROCESS_READY, "boot": terms.boot, "models": list(serving.names())}
    )
    while not stop.wait(_WATCH_S):
        if (why := _unfit(keeper, shared, settings)) is not None:
            logger.error("%s", why, extra={"action": Action.LEASE_LOST, "boot": terms.boot})
            outcome.fail()
    drain.run()
    serving.close()
    return outcome.code


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
    tries_until = time.monotonic() + _STORE_WAIT_S
    while not stop.requested:
        try:
            if journal.predecessor is not None:
                count_burial(metrics, store.bury(journal.predecessor.boot, journal.predecessor.accused))
            sent = time.monotonic()
            store.register(lease)
        except StoreUnavailableError as error:
            if time.monotonic() > tries_until:
                logger.critical("no database: %s", error, extra={"action": Action.START_REFUSED})
                return False
            logger.warning("waiting for the database: %s", error, extra={"action": Action.STORE_UNAVAILABLE})
            stop.wait(1.0)
        else:
            journal.begin_boot(terms.boot)
            shared.try_beat(sent)
            shared.beat(sent)
            start_beating(keeper)
            return True
    return False


def _loader(settings: Settings) -> "_Loader":
    return _Loader(settings)


class _Loader:
    """Chooses a variant of a model for this machine and loads it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __call__(self, files: ModelFiles) -> LoadedModel:
        name = self._settings.worker_variant
        if name == "auto":
            selection = choose_variant(
                files,
                threads=self._settings.worker_threads,
                providers=self._settings.worker_providers,
                state_file=self._settings.state_dir / "variants.json",
            )
            name = selection.chosen
            logger.info("%s", selection.reason, extra={"action": Action.VARIANT_CHOSEN, "model": str(files.ref)})
        return load_executor(files, name, threads=self._settings.worker_threads)
