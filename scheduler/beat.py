"""Celery's beat inside this process: it asks for each periodic duty in its time, with a schedule in memory only.

Two beats are harmless: whoever is asked takes the duty in the database first.
"""

import threading
from collections.abc import Callable
from typing import Any, Final

import celery
from celery.beat import Scheduler

from batchfleet.lifecycle import CrashHandler, ServiceThread, exit_on_crash

_LONGEST_S: Final = 60.0


class _Asking(Scheduler):  # type: ignore[misc]  # celery has no types
    """A schedule whose entries ring our own doorbell, which also works without a broker."""

    def __init__(self, app: celery.Celery, ask: Callable[[str], None]) -> None:
        self._ask = ask
        super().__init__(app, max_interval=_LONGEST_S)

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **_kwargs: Any) -> None:
        """Asks for one duty."""
        del producer
        due = self.reserve(entry) if advance else entry
        self._ask(due.task)

    @property
    def producer(self) -> None:
        """None: it connects to nothing."""
        return


class Beat:
    """Asks for duties, on a thread.

    Args:
        ask: Takes the name of a duty that is due; must not block for long.
    """

    def __init__(
        self, app: celery.Celery, ask: Callable[[str], None], *, on_crash: CrashHandler = exit_on_crash
    ) -> None:
        self._schedule = _Asking(app, ask)
        self._thread = ServiceThread("beat", self._run, on_crash=on_crash)

    def start(self) -> None:
        """Starts asking."""
        self._thread.start()

    def stop(self) -> None:
        """Asks no more."""
        self._thread.stop()

    def join(self, timeout_s: float) -> bool:
        """Waits for the end of the thread."""
        return self._thread.join(timeout_s)

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            stopping.wait(max(0.0, self._schedule.tick()))
