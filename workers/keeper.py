"""The lease keeper: a small process beside the worker that renews its lease and buries it when it dies.

It is forked before anything heavy is imported. It lives as long as the worker: the worker holds the only
writing end of a pipe, and the end of file on the other end is its death. The keeper then reads the journal and
queues the dead boot's jobs again at once, instead of leaving them to the lease's TTL; if it cannot (it was
killed as well, or the database is away), the worker's next boot or the rescuer does.
"""

import contextlib
import logging
import os
import select
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from batchfleet.errors import StoreUnavailableError
from batchfleet.jobs.job import BootId, RescueOutcome
from batchfleet.jobs.sql.store import SqlStore
from batchfleet.jobs.store import JobStore
from batchfleet.logs import Action, said_by
from batchfleet.telemetry import Metrics, setup_metrics
from workers.journal import read_journal
from workers.lease import SharedLease

logger = logging.getLogger(__name__)

_RETRY_S: Final = 0.5
_BURIAL_TRIES: Final = 10
_RELEASE_S: Final = 8.0


@dataclass(frozen=True, slots=True)
class KeeperTerms:
    """What the keeper needs to know.

    Attributes:
        heartbeat_s: Seconds between heartbeats.
        journal: The worker's journal file.
        metrics_dir: Where a burial is counted, or None.
    """

    boot: BootId
    database_url: str
    journal: Path
    heartbeat_s: float
    metrics_dir: Path | None = None


@dataclass(frozen=True, slots=True)
class Keeper:
    """The worker's handle on its keeper.

    Attributes:
        pid: The keeper's process.
        pipe: Writing end of the pipe; closed by the worker's death, or by `release`.
    """

    pid: int
    pipe: int

    def alive(self, shared: SharedLease, patience_s: float) -> bool:
        """Returns whether the keeper runs and did something within the last `patience_s` seconds."""
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(self.pid, os.WNOHANG) != (0, 0):
                return False
        return time.monotonic() - shared.last_tried < patience_s

    def release(self) -> None:
        """Lets the keeper go and waits for its end, for a moment; after the lease was retired."""
        os.close(self.pipe)
        until = time.monotonic() + _RELEASE_S
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            while os.waitpid(self.pid, os.WNOHANG) == (0, 0):
                if time.monotonic() > until:
                    os.kill(self.pid, signal.SIGKILL)
                time.sleep(0.01)


def fork_keeper(terms: KeeperTerms, shared: SharedLease) -> Keeper:
    """Starts the keeper. Call it before any thread exists and before numpy is imported (which makes some).

    The lease must be registered before its first heartbeat is due; until `start` is called by the worker's
    first registration, the keeper waits for the first byte on the pipe.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(reading)
        return Keeper(pid, writing)
    os.close(writing)
    code = 1
    try:
        _ignore_signals()
        keep(terms, shared, reading, SqlStore(terms.database_url))
        code = 0
    except BaseException:
        logger.exception("the lease keeper failed", extra={"action": Action.KEEPER_FAILED})
    finally:
        # Never return into the worker's code: this process is a copy of it.
        sys.stderr.flush()
        os._exit(code)
    raise AssertionError  # pragma: no cover - os._exit does not return


def start_beating(keeper: Keeper) -> None:
    """Tells the keeper that the lease is registered."""
    os.write(keeper.pipe, b".")


def keep(terms: KeeperTerms, shared: SharedLease, pipe: int, store: JobStore) -> None:
    """Renews the lease until the pipe ends, then buries the boot unless it retired."""
    if _registered(pipe):
        wait_s = 0.0
        while not _ended(pipe, wait_s):
            wait_s = _beat(terms, shared, store)
    if not shared.retired:
        bury(terms, store)
    store.close()


def bury(terms: KeeperTerms, store: JobStore) -> None:
    """Queues a dead boot's jobs again, judged by its journal; idempotent, since the next boot does the same."""
    entry = read_journal(terms.journal)
    in_pass = entry.accused if entry is not None and entry.boot == terms.boot else ()
    if entry is not None and entry.boot != terms.boot:
        return  # the next boot runs already, and has buried this one before it took the journal over
    for _ in range(_BURIAL_TRIES):
        try:
            outcome = store.bury(terms.boot, in_pass)
        except StoreUnavailableError:
            time.sleep(_RETRY_S)
            continue
        if terms.metrics_dir is not None:
            # Only now: until it buries somebody the keeper has nothing to count.
            count_burial(setup_metrics(terms.metrics_dir), outcome)
        logger.warning(
            "the worker died; its jobs are queued again",
            extra={
                "action": Action.BOOT_BURIED,
                "boot": terms.boot,
                "suspects": len(in_pass),
                "requeued": len(outcome.requeued),
                "ended": len(outcome.ended),
            },
        )
        return


def count_burial(metrics: Metrics, outcome: RescueOutcome) -> None:
    """Counts a burial that found something to bury."""
    if outcome.dead_boots or outcome.requeued or outcome.ended:
        metrics.count_rescue(requeued=len(outcome.requeued), ended=[state for _, state in outcome.ended], dead_boots=1)


def _registered(pipe: int) -> bool:
    return bool(os.read(pipe, 1))


def _ended(pipe: int, wait_s: float) -> bool:
    ready, _, _ = select.select([pipe], [], [], wait_s)
    return bool(ready) and not os.read(pipe, 1)


def _beat(terms: KeeperTerms, shared: SharedLease, store: JobStore) -> float:
    """Sends one heartbeat; returns how long to wait for the next."""
    sent = time.monotonic()
    shared.try_beat(sent)
    try:
        alive = store.heartbeat(terms.boot, shared.state)
    except StoreUnavailableError as error:
        extra = {"action": Action.HEARTBEAT_FAILED, "boot": terms.boot, **said_by(error)}
        logger.warning("heartbeat failed: %s", error, extra=extra)
        return min(_RETRY_S, terms.heartbeat_s)
    if alive:
        shared.beat(sent)
    else:
        shared.lose()
    return terms.heartbeat_s


def _ignore_signals() -> None:
    # The worker's stop signals reach the whole group (ctrl-C); the keeper must outlive the worker's drain.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
