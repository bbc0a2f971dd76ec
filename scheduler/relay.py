"""Relay: announces queued jobs whose `announce_at` has come, in a fair order.

The broker stays shallow: a flow that has enough hints in the broker gets no more, and its jobs wait in the
database, where fairness is decided late. So that a lost hint is not lost for as long as its flow is busy, a
round every `FORCED_EVERY_S` announces the longest-due jobs regardless.
"""

import logging
import time
from typing import Final

from batchfleet.broker.hint import Flow, group_hints
from batchfleet.broker.port import HintBroker
from batchfleet.clock import Monotonic
from batchfleet.errors import BrokerUnavailableError
from batchfleet.jobs.store import JobStore
from batchfleet.logs import Action
from batchfleet.telemetry import Metrics

logger = logging.getLogger(__name__)

BATCH: Final = 2_048
"""Jobs announced in one step at most; the step repeats while there are more."""
FORCED_EVERY_S: Final = 15.0


class Relay:
    """One replica's relay.

    Args:
        most_hints: Hints of one flow in the broker from which on the flow counts as full.
    """

    def __init__(
        self,
        store: JobStore,
        broker: HintBroker,
        metrics: Metrics,
        most_hints: int,
        clock: Monotonic = time.monotonic,
    ) -> None:
        self._store = store
        self._broker = broker
        self._metrics = metrics
        self._most_hints = most_hints
        self._clock = clock
        self._known: set[Flow] = set()
        self._forced_at = clock()

    def step(self) -> int:
        """Announces what is due and fits; returns how many jobs that were.

        A broker that is down costs nothing but the announcement: the jobs come up again, and workers find them
        in the database meanwhile.
        """
        full = self._full_flows()
        announced = self._store.announceable(BATCH, skip=[(flow.model, flow.lane) for flow in full])
        if not announced:
            return 0
        hints = group_hints(announced)
        self._known |= {hint.flow for hint in hints}
        try:
            self._broker.publish(hints)
        except BrokerUnavailableError as error:
            self._metrics.announcements_failed.inc(len(announced))
            logger.warning("the broker is away: %s", error, extra={"action": Action.BROKER_UNAVAILABLE})
        else:
            self._metrics.relayed_jobs.inc(len(announced))
        return len(announced)

    def _full_flows(self) -> list[Flow]:
        now = self._clock()
        if now - self._forced_at >= FORCED_EVERY_S:
            self._forced_at = now
            return []
        try:
            return [flow for flow in self._known if self._broker.depth(flow) >= self._most_hints]
        except BrokerUnavailableError:
            return []
