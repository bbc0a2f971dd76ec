"""The control plane of one scheduler: deliveries and periodic duties, over Celery, started and stopped as one."""

import logging
import time
from typing import Final

from batchfleet.broker.connect import has_broker
from batchfleet.broker.port import Ring
from batchfleet.clock import Monotonic
from batchfleet.lifecycle import ServiceThread
from batchfleet.outbox.delivery import DeliveryId, DeliveryKind
from batchfleet.outbox.port import OutboxStore
from batchfleet.settings import Settings
from scheduler.beat import Beat
from scheduler.celery_app import PURGE, SWEEP_ORPHANS, Tasks, build_celery
from scheduler.control_worker import ControlWorker
from scheduler.deliver import Deliverer
from scheduler.direct import DirectPool
from scheduler.doorbell import UNANSWERED_S, CelerySender, Doorbell
from scheduler.postman import Postman
from scheduler.retention import Retention
from scheduler.work import UnderWay

logger = logging.getLogger(__name__)

IDLE_S: Final = 5.0
"""Safety net: how often the postman looks where a ring wakes it."""


def places_of(settings: Settings) -> dict[DeliveryKind, int]:
    """Returns how many deliveries of each kind run at once: receivers that hang must not keep outputs waiting."""
    threads = settings.control_threads
    return {DeliveryKind.WEBHOOK: threads, DeliveryKind.OUTPUT: max(1, threads // 2)}


class Control:
    """Runs the control plane.

    Args:
        settings: `broker_url`, `control_threads` and `sweep_s` count.
        deliverer: Makes attempts.
        retention: Does the periodic duties.
        ring: Tells of ended jobs.
        resend_s: After how long a delivery that nobody has begun is rung for again.
    """

    def __init__(
        self,
        settings: Settings,
        outbox: OutboxStore,
        deliverer: Deliverer,
        retention: Retention,
        ring: Ring,
        *,
        under_way: UnderWay,
        resend_s: float = UNANSWERED_S,
        clock: Monotonic = time.monotonic,
    ) -> None:
        with_broker = has_broker(settings.broker_url)
        threads = sum(places_of(settings).values()) + 1  # and one for a duty
        self._deliverer = deliverer
        self._retention = retention
        self._ring = ring
        self._under_way = under_way
        duties = {PURGE: self._purge, SWEEP_ORPHANS: self._sweep_orphans}
        self.app = build_celery(settings, Tasks(deliver=self._deliver, duties=duties))
        self._pool = DirectPool(threads)
        send = CelerySender(self.app, clock) if with_broker else None
        self._doorbell = Doorbell(self.app, self._pool, send, clock)
        self.postman = Postman(
            outbox,
            self._doorbell,
            idle_s=IDLE_S if with_broker else settings.sweep_s,
            resend_s=resend_s,
            clock=clock,
            full=deliverer.full,
        )
        self.worker = ControlWorker(self.app, threads) if with_broker else None
        self._beat = Beat(self.app, self._doorbell.ask)
        self._thread = ServiceThread("postman", self.postman.run, wake=self.postman.wake)

    def start(self) -> None:
        """Starts all threads."""
        self._ring.listen(self.postman.heard)
        if self.worker is not None:
            self.worker.start()
        self._beat.start()
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Begins nothing more and lets end what is under way; returns whether all of it has."""
        self._beat.stop()
        self._thread.stop()
        if self.worker is not None:
            self.worker.stop()
        ended = self._under_way.close(timeout_s)
        self._pool.close()
        self._thread.join(1.0)
        return ended

    def join(self, timeout_s: float) -> bool:
        """Waits for Celery's threads, which have nothing to do any more; returns whether they have ended."""
        return self.worker is None or self.worker.join(timeout_s)

    # -- tasks ---------------------------------------------------------------------------------------------------

    def _deliver(self, delivery_id: DeliveryId) -> None:
        self._doorbell.answered(delivery_id)
        with self._under_way.entered() as entered:
            if entered:
                self._deliverer.deliver(delivery_id)
        if not self._under_way.closed:
            self.postman.wake()

    def _purge(self) -> None:
        with self._under_way.entered() as entered:
            if entered:
                self._retention.purge()

    def _sweep_orphans(self) -> None:
        with self._under_way.entered() as entered:
            if entered:
                self._retention.sweep_orphans()
