"""Deliver: one attempt of one delivery, fenced by its row.

The row is begun before anything leaves the house, and finished after: a ring that comes twice finds the row begun,
an attempt whose process dies is repeated once its lease is over, with the same webhook id.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from batchfleet.clock import Monotonic
from batchfleet.errors import StoreUnavailableError
from batchfleet.jobs.job import format_job_id
from batchfleet.logs import Action
from batchfleet.outbox.delivery import Delivery, DeliveryId, DeliveryKind, Lane, Outcome
from batchfleet.outbox.port import OutboxStore
from batchfleet.outbox.schedule import DELAYS_S, retry_in_s
from batchfleet.outbox.sender import Answer
from batchfleet.outbox.signature import webhook_id
from batchfleet.telemetry import Metrics
from scheduler.payers import Payer
from scheduler.shares import Shares, Turn, turn_of

logger = logging.getLogger(__name__)

_UNEXPECTED: Final = "an unexpected error here: the operator's log says more"


class Deliverer:
    """Makes attempts, from any thread.

    Args:
        payers: Who pays which kind.
        lease_s: How long an attempt of a kind may take before it counts as lost.
        places: How many attempts of a kind run at once; half of them at most are of one tenant.
        stopping: Whether nothing more is to begin.
        delays_s: The schedule.
        chance: Numbers in [0, 1), for its jitter.
    """

    def __init__(
        self,
        outbox: OutboxStore,
        payers: Mapping[DeliveryKind, Payer],
        metrics: Metrics,
        *,
        lease_s: Mapping[DeliveryKind, float],
        places: Mapping[DeliveryKind, int],
        delays_s: Sequence[float] = DELAYS_S,
        chance: Callable[[], float] = random.random,
        clock: Monotonic = time.monotonic,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._outbox = outbox
        self._payers = payers
        self._metrics = metrics
        self._lease_s = lease_s
        self._delays_s = delays_s
        self._chance = chance
        self._clock = clock
        self._stopping = stopping
        self._shares = Shares(dict(places))
        self._lock = threading.Lock()

    def deliver(self, delivery_id: DeliveryId) -> None:
        """Makes an attempt, if one is due and it is its turn, and after it those that waited for that.

        A database that is away leaves the row to be rung for again.
        """
        try:
            known = self._outbox.find(delivery_id)
            turn = None if known is None else self._begin(turn_of(known))
            while turn is not None:
                turn = self._take(turn)
        except StoreUnavailableError as exc:
            logger.warning("delivery left for later: %s", exc, extra={"action": Action.STORE_UNAVAILABLE})

    def full(self) -> list[Lane]:
        """Returns the lanes of which enough waits here."""
        with self._lock:
            return self._shares.full()

    def _begin(self, turn: Turn) -> tuple[Turn, float] | None:
        with self._lock:
            now = self._clock()
            return (turn, now) if self._shares.begin(turn, now) else None

    def _take(self, begun: tuple[Turn, float]) -> tuple[Turn, float] | None:
        """Makes the attempt; returns whose turn it is then."""
        turn, began = begun
        went = False
        try:
            self._attempt(turn)
            went = True
        finally:
            with self._lock:
                now = self._clock()
                self._shares.end(turn, began, now)
                after = self._shares.next(now) if went and not self._stopping() else None
        return None if after is None else (after, now)

    def _attempt(self, turn: Turn) -> None:
        delivery = self._outbox.begin(turn.id, lease_s=self._lease_s[turn.lane.kind])
        if delivery is None:
            return
        began = self._clock()
        answer = self._ask(delivery)
        duration_s = self._clock() - began
        again_s = None
        if answer.error is not None and not answer.final:
            again_s = retry_in_s(
                delivery.attempts,
                chance=self._chance(),
                status=answer.status,
                retry_after_s=answer.retry_after_s,
                delays_s=self._delays_s,
            )
        outcome = Outcome(duration_s=duration_s, status=answer.status, error=answer.error)
        if self._outbox.finish(delivery.id, delivery.epoch, outcome, retry_in_s=again_s):
            self._tell(delivery, outcome, again_s)

    def _ask(self, delivery: Delivery) -> Answer:
        try:
            return self._payers[delivery.kind].attempt(delivery)
        except StoreUnavailableError:
            raise
        except Exception:
            logger.exception("delivery failed", extra={"delivery": webhook_id(delivery.id)})
            return Answer(error=_UNEXPECTED)

    def _tell(self, delivery: Delivery, outcome: Outcome, again_s: float | None) -> None:
        became = "delivered" if outcome.error is None else "failed" if again_s is None else "retried"
        self._metrics.deliveries.labels(delivery.kind.value, became).inc()
        self._metrics.delivery_seconds.labels(delivery.kind.value).observe(outcome.duration_s)
        extra = {
            "action": Action.DELIVERED if outcome.error is None else Action.DELIVERY_FAILED,
            "delivery": webhook_id(delivery.id),
            "job": format_job_id(delivery.job_id),
            "tenant": delivery.tenant,
            "attempt": delivery.attempts,
        }
        if outcome.error is None:
            logger.info("%s delivered", delivery.kind.value, extra=extra)
        else:
            extra["again_in_s"] = None if again_s is None else round(again_s)
            logger.warning("%s not delivered: %s", delivery.kind.value, outcome.error, extra=extra)
