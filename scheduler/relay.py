"""Relay: announces queued jobs whose `announce_at` has come, in a fair order.

The broker stays shallow: a flow that has enough hints in the broker gets no more, and its jobs wait in the
database, where fairness is decided late. What is enough depends on how fast the workers are, so it is learned: a
flow that ran dry between two rounds may have twice as many from then on, one that is full half. So that a lost
hint is not lost for as long as its flow is busy, a round every `FORCED_EVERY_S` announces the longest-due jobs
regardless.
"""

import logging
import time
from typing import Final

from batchfleet.broker.hint import Flow, group_hints
from batchfleet.broker.port import HintBroker
from batchfleet.clock import Monotonic
from batchfleet.errors import BrokerUnavailableError
from batchfleet.jobs.store import JobStore
from batchfleet.logs import Action, OutageLog
from batchfleet.telemetry import Metrics

logger = logging.getLogger(__name__)

BATCH: Final = 2_048
"""Jobs announced in one step at most; the step repeats while there are more."""
FORCED_EVERY_S: Final = 15.0
FEWEST_HINTS: Final = 16
"""What is enough for a flow of which nothing is known: some seconds of work for one CPU worker."""


class Relay:
    """One replica's relay.

    Args:
        most_hints: Hints of one flow in the broker from which on the flow is full, however fast it drains.
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
        self._enough: dict[Flow, int] = {}
        self._forced_at = clock()
        self._outage = OutageLog(logger, "the broker", Action.BROKER_UNAVAILABLE, clock)

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
        for hint in hints:
            self._enough.setdefault(hint.flow, min(FEWEST_HINTS, self._most_hints))
        try:
            self._broker.publish(hints)
        except BrokerUnavailableError as error:
            self._metrics.announcements_failed.inc(len(announced))
            self._outage.failed(error)
        else:
            self._outage.worked()
            self._metrics.relayed_jobs.inc(len(announced))
        return len(announced)

    def _full_flows(self) -> list[Flow]:
        now = self._clock()
        if now - self._forced_at >= FORCED_EVERY_S:
            self._forced_at = now
            return []
        try:
            depths = {flow: self._broker.depth(flow) for flow in self._enough}
        except BrokerUnavailableError:
            return []
        full = [flow for flow, depth in depths.items() if depth >= self._enough[flow]]
        for flow, depth in depths.items():
            self._enough[flow] = next_enough(self._enough[flow], depth, most=self._most_hints)
        return full


def next_enough(enough: int, depth: int, *, most: int) -> int:
    """Returns how many hints are enough for a flow after `depth` of them were found in the broker.

    Args:
        enough: What was enough so far.
        depth: 0 says that the workers ran dry: they are faster than that.
        most: An upper bound.
    """
    if depth == 0:
        return min(most, 2 * enough)
    return max(min(FEWEST_HINTS, most), enough // 2) if depth >= enough else enough
