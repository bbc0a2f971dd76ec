"""The postman: sees which deliveries are due, and rings for them.

One probe says when the next one is; until then it sleeps. The ring of ended jobs wakes it, so that a webhook leaves
at once; a probe every few seconds is the safety net. An idle fleet costs it a read every `idle_s`.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from batchfleet.clock import Monotonic
from batchfleet.errors import StoreUnavailableError
from batchfleet.jobs.job import JobId
from batchfleet.logs import Action, OutageLog
from batchfleet.outbox.delivery import Lane
from batchfleet.outbox.port import OutboxStore
from scheduler.doorbell import UNANSWERED_S, Doorbell
from scheduler.shares import PER_LOOK

logger = logging.getLogger(__name__)

GAP_S: Final = 0.1
"""Between two looks, however often it rings: a busy fleet rings at each settle, and few jobs owe anybody anything."""
_AWAY_S: Final = 2.0
_FULL_S: Final = 0.5
"""Until the next look where all that is due waits for its turn already; an attempt's end comes first."""


class Postman:
    """Rings for what is due. `run` is its thread.

    Args:
        idle_s: Seconds between two looks when nothing rings.
        resend_s: After how long it rings again for a delivery that nobody has begun.
        full: Of which lanes enough waits here.
    """

    def __init__(
        self,
        outbox: OutboxStore,
        doorbell: Doorbell,
        *,
        idle_s: float,
        resend_s: float = UNANSWERED_S,
        clock: Monotonic = time.monotonic,
        full: Callable[[], Collection[Lane]] = tuple,
    ) -> None:
        self._outbox = outbox
        self._full = full
        self._doorbell = doorbell
        self._idle_s = idle_s
        self._resend_s = resend_s
        self._woken = threading.Event()
        self._outage = OutageLog(logger, "the database", Action.STORE_UNAVAILABLE, clock)

    def heard(self, _ids: Sequence[JobId]) -> None:
        """Takes a ring of ended jobs: they may owe something."""
        self._woken.set()

    def wake(self) -> None:
        """Has it look now."""
        self._woken.set()

    def run(self, stopping: threading.Event) -> None:
        """Looks and sleeps until stopped: the body of the thread. Whoever stops it wakes it."""
        while not stopping.is_set():
            self._woken.clear()
            wait_s = self.once()
            if not stopping.wait(GAP_S):
                self._woken.wait(max(0.0, wait_s - GAP_S))

    def once(self) -> float:
        """Rings for what is due now; returns the seconds until it is worth looking again."""
        try:
            wait_s = self._ring()
        except StoreUnavailableError as error:
            self._outage.failed(error)
            return _AWAY_S
        self._outage.worked()
        return wait_s

    def _ring(self) -> float:
        left_s = self._outbox.next_due_s()
        if left_s is None or left_s > 0:
            return self._idle_s if left_s is None else min(left_s, self._idle_s)
        room = self._doorbell.room
        if not room:
            return GAP_S
        taken = self._outbox.take_due(room, resend_s=self._resend_s, without=self._full(), per_lane=PER_LOOK)
        for due in taken:
            self._doorbell.ring(due)
        return GAP_S if taken else _FULL_S
