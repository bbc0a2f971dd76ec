"""`batchfleet up`: the whole fleet in the foreground, until a signal ends it."""

import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TextIO

from batchfleet.database.sqlite import database_file, lock_file
from batchfleet.embedded.cache import make_demo_model
from batchfleet.embedded.database import require_usable_database
from batchfleet.embedded.exits import Exit
from batchfleet.embedded.lock import AlreadyRunningError, DataDirError, DataDirLock
from batchfleet.embedded.lock_watch import LockWatch
from batchfleet.embedded.placement import place
from batchfleet.embedded.processes import PidFiles
from batchfleet.embedded.readiness import Readiness
from batchfleet.embedded.server_user import PostgresServerError
from batchfleet.embedded.stack import PortInUseError, Stack, StackInfo, StackSpec, lay_out
from batchfleet.embedded.supervisor import Supervisor
from batchfleet.embedded.telling import tell_error, words_of
from batchfleet.errors import BatchfleetError
from batchfleet.jobs.sql.store import SqlStore
from batchfleet.logs import setup_logging
from batchfleet.models.repository import ModelRepository
from batchfleet.settings import SettingsError, UnsafeHostError, check_host, folder_of, read_settings
from batchfleet.telemetry import setup_metrics

Say = Callable[[str], None]

_PRIVATE = 0o077
"""Nothing that a fleet writes is for other users: webhook secrets and what people submit lie in it."""
_PROBE_S = 0.1
_WATCH_S = 5.0
_FAILURES_BEFORE_READY = 4
_SQLITE = "sqlite:///"


class NoModelError(BatchfleetError):
    """The demo model could not be made."""

    code = "no_model"


class NotStartedError(BatchfleetError):
    """A part kept failing before the fleet was ready."""

    code = "not_ready"


_EXITS: Mapping[type[BatchfleetError], Exit] = MappingProxyType(
    {
        AlreadyRunningError: Exit.ALREADY_RUNNING,
        DataDirError: Exit.USAGE,
        NoModelError: Exit.NO_MODEL,
        NotStartedError: Exit.NOT_READY,
        PortInUseError: Exit.PORT_IN_USE,
        PostgresServerError: Exit.CONFIG,
        SettingsError: Exit.CONFIG,
        UnsafeHostError: Exit.CONFIG,
    }
)


def run_up(
    spec: StackSpec,
    *,
    model: str,
    workers: int | None = None,
    tune: bool = False,
    as_json: bool = False,
    out: TextIO | None = None,
) -> Exit:
    """Runs a fleet until a signal ends it; call on the main thread.

    Args:
        spec: What to run; its workers, their threads and devices are decided here.
        workers: Worker processes as asked for; None: as tuned, one a GPU, or one a core.
        tune: Whether the machine is measured first.
        model: `demo` makes the demo model where the repository is empty, `none` does not.
        as_json: Says what it does on stderr, and one line of JSON on `out` once the fleet is ready.
        out: Where results go; default: stdout.

    Returns:
        The exit code.
    """
    out = out or sys.stdout

    def say(text: str) -> None:
        print(text, file=sys.stderr if as_json else out, flush=True)

    def refuse(message: str, error_code: str, code: Exit) -> Exit:
        tell_error(message, code=error_code, as_json=as_json, who="batchfleet up")
        return code

    before = os.umask(_PRIVATE)
    try:
        _check(spec)
        with DataDirLock(spec.data_dir) as lock:
            stack, needs_worker = _prepare(spec, lock, model, say)
            if tune:
                from batchfleet.embedded.tune.run import measure  # noqa: PLC0415 - loads runtimes

                measure(stack.settings, say)
            return _run(_placed(stack, workers, say), needs_worker, say, out if as_json else None)
    except BatchfleetError as error:
        return refuse(str(error), error.code, _EXITS.get(type(error), Exit.FAILED))
    except OSError as error:  # a full disk, a folder that is no folder
        return refuse(words_of(error), "system_error", Exit.FAILED)
    finally:
        os.umask(before)


def _check(spec: StackSpec) -> None:
    """Refuses what cannot work before anything is made or started.

    Raises:
        SettingsError: If a setting of the environment is wrong.
        UnsafeHostError: If others could reach the host without a key.
    """
    settings = read_settings()
    if spec.postgres and "BATCHFLEET_DATABASE_URL" in os.environ:
        raise SettingsError(
            "--postgres starts a database of the fleet's own, and BATCHFLEET_DATABASE_URL names another: leave one out"
        )
    try:
        require_usable_database(settings.database_url)
    except ValueError as error:
        raise SettingsError(f"BATCHFLEET_DATABASE_URL: {error}") from None
    check_host(spec.host, require_keys=settings.require_keys, named="--host (BATCHFLEET_API_HOST)")


def _prepare(spec: StackSpec, lock: DataDirLock, model: str, say: Say) -> tuple[Stack, bool]:
    """Clears away an earlier run and sees to the model; returns the stack, and whether there is a model to serve."""
    pid_files = PidFiles(spec.data_dir / "run")
    for pid in pid_files.kill_leftovers():
        say(f"killed process {pid}, left behind by an earlier run")
    StackInfo.remove(spec.data_dir)
    stack = lay_out(spec)
    setup_logging(stack.settings.log_level, stack.settings.log_format)
    lock.publish(url=stack.url)
    repository = ModelRepository(folder_of(stack.settings.models_url))
    if model == "demo" and not repository.models():
        say(f"the repository {repository.root} is empty: it gets the demo model")
        try:
            make_demo_model(repository, lambda text: say(f"  {text}"))
        except BatchfleetError as error:
            raise NoModelError(str(error)) from error
    return stack, bool(repository.models())


def _placed(stack: Stack, workers: int | None, say: Say) -> Stack:
    """Decides how many workers there are, and with what."""
    placement = place(stack.settings, workers)
    shown = f", {placement.threads} thread(s) each" if placement.threads is not None else ""
    gpus = f", on GPU {', '.join(placement.devices)}" if placement.devices else ""
    say(f"{placement.workers} worker(s), {placement.reason}{shown}{gpus}")
    spec = replace(stack.spec, workers=placement.workers, threads=placement.threads, devices=placement.devices)
    return replace(stack, spec=spec)


def _run(stack: Stack, needs_worker: bool, say: Say, json_out: TextIO | None) -> Exit:
    metrics = setup_metrics(stack.settings.metrics_dir)

    def count(name: str, reason: str) -> None:
        if name.startswith("worker-"):
            metrics.worker_restarts.labels(reason).inc()

    data_dir = stack.spec.data_dir
    with Supervisor(stack.children(), pid_files=PidFiles(data_dir / "run"), on_exit=count) as supervisor:
        run = _Run(stack, supervisor, say, json_out)
        try:
            return run.until_stopped(needs_worker=needs_worker)
        finally:
            StackInfo.remove(data_dir)


class _Run:
    """One run of a fleet, from its start to its end."""

    def __init__(self, stack: Stack, supervisor: Supervisor, say: Say, json_out: TextIO | None) -> None:
        self._stack = stack
        self._supervisor = supervisor
        self._say = say
        self._json_out = json_out

    def until_stopped(self, *, needs_worker: bool) -> Exit:
        self._start_database()
        if self._supervisor.stops_asked == 0:
            self._start_fleet(needs_worker)
        if self._supervisor.stops_asked == 0:
            self._announce(needs_worker)
            self._watch()
        return self._stop()

    def _start_database(self) -> None:
        postgres = self._stack.postgres
        if postgres is not None:
            self._say(f"starting Postgres in {postgres.data.parent}")
            self._supervisor.start("postgres")
            self._until(postgres.answers, lambda: "Postgres does not answer yet")
        if self._supervisor.stops_asked == 0:
            _upgrade_database(self._stack)

    def _start_fleet(self, needs_worker: bool) -> None:
        self._say(f"starting {self._stack.spec.workers} worker(s), scheduler and API at {self._stack.url}")
        self._supervisor.start()
        store = SqlStore(self._stack.settings.database_url)
        workers = self._stack.spec.workers if needs_worker else 0
        readiness = Readiness(self._stack.url, store.workers, workers=workers)
        try:
            self._until(lambda: readiness.ready(self._supervisor.pids().values()), lambda: readiness.missing)
        finally:
            store.close()

    def _log_of(self, name: str) -> str:
        if name == "valkey":
            return str(self._stack.spec.data_dir / "valkey" / "valkey.log")
        return str(self._stack.postgres.log) if self._stack.postgres and name == "postgres" else "above"

    def _until(self, ready: Callable[[], bool], missing: Callable[[], str]) -> None:
        """Waits until it is ready or we are asked to stop.

        Raises:
            NotStartedError: If a part fails too often to wait on; everything is stopped then.
        """
        began = time.monotonic()
        told_s = 10.0
        while self._supervisor.stops_asked == 0:
            self._supervisor.step(_PROBE_S)
            failing = self._supervisor.failing(_FAILURES_BEFORE_READY)
            if failing is not None:
                self._supervisor.stop()
                raise NotStartedError(f"{failing} keeps failing, giving up; its log is {self._log_of(failing)}")
            if ready():
                return
            if time.monotonic() - began > told_s:
                self._say(f"still starting: {missing()}")
                told_s *= 2

    def _announce(self, needs_worker: bool) -> None:
        info = self._publish()
        self._say(f"ready: {info.url} (documentation: {info.url}/docs)")
        if needs_worker:
            name = ModelRepository(folder_of(self._stack.settings.models_url)).models()[0]
            self._say(
                f"try it:\n  curl -s '{info.url}/v1/jobs?wait=10' -H 'Content-Type: application/json' \\\n"
                f'    -d \'{{"model": "{name}", "inputs": ["A queue is a promise."]}}\'\n'
            )
        self._say("ctrl-C drains and stops; a second one stops at once")
        if self._json_out is not None:
            print(info.to_json(), file=self._json_out, flush=True)

    def _watch(self) -> None:
        """Keeps the parts alive until somebody asks to stop."""
        database = self._stack.settings.database_url
        watch = LockWatch(lock_file(database_file(database))) if database.startswith(_SQLITE) else None
        next_look = time.monotonic()
        while self._supervisor.stops_asked == 0:
            if self._supervisor.step(_WATCH_S):
                # A full disk must not end the fleet: what was published before is a little out of date then.
                with contextlib.suppress(OSError):
                    self._publish()
            if watch is not None and time.monotonic() >= next_look:
                next_look = time.monotonic() + _WATCH_S
                pid = watch.overdue()
                if pid is not None:
                    self._supervisor.kill(pid, "it hangs while it holds the database's write lock")

    def _publish(self) -> StackInfo:
        supervisor, spec = self._supervisor, self._stack.spec
        info = StackInfo(
            url=self._stack.url,
            pid=os.getpid(),
            data_dir=str(spec.data_dir.resolve()),
            pids=supervisor.pids(),
            restarts=supervisor.restarts,
            workers=spec.workers,
        )
        info.write()
        return info

    def _stop(self) -> Exit:
        self._say("stopping: workers finish what they have begun (ctrl-C again to stop at once)")
        asked = self._supervisor.stops_asked
        clean = self._supervisor.stop()
        if clean:
            self._say("stopped")
        elif self._supervisor.stops_asked > asked:
            self._say("stopped at once, as asked (jobs that were running will be run again)")
        else:
            self._say("stopped; a part had to be killed (its jobs will be run again)")
        return Exit.OK if clean else Exit.KILLED


def _upgrade_database(stack: Stack) -> None:
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it tells at length what is no news
    from migrations import upgrade  # noqa: PLC0415 - Alembic is heavy, and only needed here

    upgrade(stack.settings.database_url)
