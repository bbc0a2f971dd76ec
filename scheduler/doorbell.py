"""The doorbell of the control plane: over the broker where that works, on our own threads where it does not.

Nothing depends on the broker, nor on Celery's worker: a ring that cannot be sent is answered here at once, and one
that was sent but that nobody has answered when its row comes up again is answered here, too.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

import celery

from batchfleet.clock import Monotonic
from batchfleet.logs import Action, OutageLog
from batchfleet.outbox.delivery import DeliveryId, DueDelivery
from scheduler.celery_app import DELIVER, RING_EXPIRES_S, run_here
from scheduler.direct import DirectPool

logger = logging.getLogger(__name__)

MOST_UNANSWERED: Final = 256
"""Rings of this process in the broker: it stays shallow, and what is due stays in the database."""
UNANSWERED_S: Final = 10.0
"""How long a ring counts among those: others may have answered it. Rows are rung for again after it."""
_REMEMBERED: Final = 4_096
_HOLD_S: Final = 2.0
_ONCE_MORE: Final = {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}
"""A connection that went stale while idle is replaced; a broker that is away is not waited for."""


class CelerySender:
    """Sends tasks over the broker; while that is away it is asked only now and then."""

    def __init__(self, app: celery.Celery, clock: Monotonic = time.monotonic) -> None:
        self._app = app
        self._clock = clock
        self._hold_until = 0.0
        self._outage = OutageLog(logger, "the broker (rings are answered here)", Action.BROKER_UNAVAILABLE, clock)
        self._lock = threading.Lock()

    def __call__(self, task: str, *args: str) -> bool:
        """Returns whether the task was sent."""
        with self._lock:
            if self._clock() < self._hold_until:
                return False
            try:
                self._app.tasks[task].apply_async(args, expires=RING_EXPIRES_S, retry=True, retry_policy=_ONCE_MORE)
            except Exception as exc:  # noqa: BLE001 - kombu's, redis-py's and the socket's errors all mean one thing
                self._hold_until = self._clock() + _HOLD_S
                self._outage.failed(exc)
                return False
            self._outage.worked()
            return True


class Doorbell:
    """Rings for deliveries and duties.

    Args:
        app: Its tasks are run here where ringing is in vain.
        pool: Runs them.
        send: Sends a task over the broker; returns False where it could not. None where there is no broker.
    """

    def __init__(
        self,
        app: celery.Celery,
        pool: DirectPool,
        send: Callable[..., bool] | None = None,
        clock: Monotonic = time.monotonic,
    ) -> None:
        self._app = app
        self._pool = pool
        self._send = send
        self._clock = clock
        self._lock = threading.Lock()
        self._rung: dict[DeliveryId, tuple[int, float]] = {}

    @property
    def room(self) -> int:
        """For how many more deliveries it can be rung now."""
        if self._send is None:
            return self._pool.room
        since = self._clock() - UNANSWERED_S
        with self._lock:
            return max(0, MOST_UNANSWERED - sum(at > since for _, at in self._rung.values()))

    def ring(self, due: DueDelivery) -> None:
        """Has a delivery begun soon. Where there is no room for it now, it comes up again."""
        if self._send is not None and not self._rung_in_vain(due) and self._send(DELIVER, due.id):
            self._remember(due)
            return
        self._pool.submit(lambda: run_here(self._app, DELIVER, due.id))

    def ask(self, duty: str) -> None:
        """Has a duty done soon."""
        if self._send is None or not self._send(duty):
            self._pool.submit(lambda: run_here(self._app, duty))

    def answered(self, delivery: DeliveryId) -> None:
        """Notes that a ring was answered in this process."""
        with self._lock:
            self._rung.pop(delivery, None)

    def _rung_in_vain(self, due: DueDelivery) -> bool:
        with self._lock:
            epoch, _ = self._rung.get(due.id, (-1, 0.0))
        return epoch == due.epoch

    def _remember(self, due: DueDelivery) -> None:
        with self._lock:
            self._rung.pop(due.id, None)
            self._rung[due.id] = (due.epoch, self._clock())
            while len(self._rung) > _REMEMBERED:
                del self._rung[next(iter(self._rung))]
