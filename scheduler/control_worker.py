"""Celery's worker inside this process: a thread that takes rings from the broker, and a pool that answers them.

It takes no signal, speaks to no other worker, and whatever becomes of it, deliveries go on (`scheduler.doorbell`).
"""

import logging
import threading
from contextlib import suppress
from typing import Any, Final

import celery
from celery.worker import WorkController

from batchfleet.lifecycle import CrashHandler, ServiceThread, exit_on_crash

logger = logging.getLogger(__name__)

_AGAIN_S: Final = 5.0


class ControlWorker:
    """Runs the tasks of an application that come over its broker.

    Args:
        threads: Tasks at once.
    """

    def __init__(self, app: celery.Celery, threads: int, *, on_crash: CrashHandler = exit_on_crash) -> None:
        self._app = app
        self._threads = threads
        self._lock = threading.Lock()
        self._worker: Any = None
        self.consuming = threading.Event()
        """Set when it has begun to take messages for the first time."""
        self._thread = ServiceThread("celery", self._run, wake=self._close, on_crash=on_crash)

    def start(self) -> None:
        """Starts taking messages, as soon as the broker answers."""
        # Celery's pool looks tasks up in the process's default application: one control plane a process.
        self._app.set_default()
        self._thread.start()

    def stop(self) -> None:
        """Takes no more; returns at once."""
        self._thread.stop()

    def join(self, timeout_s: float) -> bool:
        """Waits for the end of the thread."""
        return self._thread.join(timeout_s)

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            worker = WorkController(
                app=self._app,
                pool="threads",
                concurrency=self._threads,
                without_gossip=True,
                without_mingle=True,
                without_heartbeat=True,
                # Celery's own loop is one for a whole process; the plain one costs no more here.
                use_eventloop=False,
                ready_callback=lambda _: self.consuming.set(),
            )
            with self._lock:
                self._worker = worker
            worker.start()  # until it is told to stop: it reconnects by itself
            if not stopping.is_set():
                logger.error("celery's worker has ended by itself (%s); starting another", worker.exitcode)
                stopping.wait(_AGAIN_S)

    def _close(self) -> None:
        """Ends the loop from outside; what is under way goes on."""
        with self._lock:
            worker = self._worker
        if worker is not None:
            # On a thread of its own: it waits for the answer to the last BRPOP.
            threading.Thread(target=_stop, args=(worker,), name="celery-stop", daemon=True).start()


def _stop(worker: Any) -> None:
    with suppress(Exception):
        worker.stop()
