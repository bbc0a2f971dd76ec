"""The announcer of an API process: after the commit, it tells the broker; nobody ever waits for it."""

import logging
import threading
from collections.abc import Sequence
from typing import Final

from batchfleet.broker.hint import group_hints
from batchfleet.broker.port import HintBroker
from batchfleet.errors import BrokerUnavailableError
from batchfleet.jobs.job import Announcement
from batchfleet.lifecycle import CrashHandler, ServiceThread, exit_on_crash
from batchfleet.telemetry import Action, Metrics

DEFAULT_CAPACITY: Final = 100_000
"""Jobs that may wait to be announced; more are left to the relay."""

_PAUSES_S: Final = (0.1, 0.25, 0.5, 1.0)
"""Pause after the first, second, … failure in a row; what is submitted meanwhile is announced together."""

logger = logging.getLogger(__name__)


class Announcer:
    """Publishes hints of committed jobs, on a thread that owns the broker adapter.

    Whatever arrives during one publish goes out with the next. What cannot be announced is dropped and counted:
    the relay announces it seconds later.

    Args:
        broker: Used by this announcer only, and closed by it.
        capacity: Jobs that may wait; more are dropped.
    """

    def __init__(
        self,
        broker: HintBroker,
        *,
        metrics: Metrics,
        capacity: int = DEFAULT_CAPACITY,
        on_crash: CrashHandler = exit_on_crash,
    ) -> None:
        self._broker = broker
        self._metrics = metrics
        self._capacity = capacity
        self._changed = threading.Condition()
        self._waiting: list[Announcement] = []
        self._failures = 0
        self._thread = ServiceThread("announcer", self._run, wake=self._wake, on_crash=on_crash)

    def start(self) -> None:
        """Starts the thread; once."""
        self._thread.start()

    def announce(self, jobs: Sequence[Announcement]) -> None:
        """Takes jobs to be announced; never blocks, never raises; callable from any thread."""
        with self._changed:
            room = 0 if self._thread.stopping.is_set() else self._capacity - len(self._waiting)
            self._waiting.extend(jobs[: max(0, room)])
            self._changed.notify()
        if len(jobs) > room:
            self._metrics.announcements_dropped.inc(len(jobs) - room)

    def close(self, timeout_s: float = 3.0) -> None:
        """Announces what is waiting, once, and ends; gives up after `timeout_s`. Idempotent."""
        self._thread.stop()
        self._thread.join(timeout_s)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify()

    def _run(self, stopping: threading.Event) -> None:
        try:
            while jobs := self._next(stopping):
                self._publish(jobs)
                if self._failures:
                    stopping.wait(_PAUSES_S[min(self._failures, len(_PAUSES_S)) - 1])
        finally:
            self._broker.close()

    def _next(self, stopping: threading.Event) -> list[Announcement]:
        """Waits for jobs. Returns none only when told to stop and nothing is left."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or stopping.is_set())
            jobs, self._waiting = self._waiting, []
            return jobs

    def _publish(self, jobs: Sequence[Announcement]) -> None:
        try:
            self._broker.publish(group_hints(jobs))
        except BrokerUnavailableError as error:
            self._failures += 1
            self._metrics.announcements_failed.inc(len(jobs))
            if self._failures == 1:  # once an outage; the counter says how long it lasts
                logger.warning(
                    "cannot announce, leaving it to the relay",
                    extra={"action": Action.BROKER_UNAVAILABLE, "jobs": len(jobs), "reason": str(error)},
                )
        else:
            if self._failures:
                logger.info("announcing again", extra={"action": Action.BROKER_AVAILABLE})
            self._failures = 0
