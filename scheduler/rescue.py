"""Rescue: takes the jobs of dead workers and of wedged runs.

It acts only after a full lease TTL of unbroken contact with the database. During an outage no worker can renew
its lease; a rescuer that came back first would otherwise declare them all dead by mistake.
"""

import logging
import time
from typing import Final

from batchfleet.broker.port import Ring
from batchfleet.clock import Monotonic
from batchfleet.jobs.job import RescueOutcome
from batchfleet.jobs.store import JobStore
from batchfleet.logs import Action
from batchfleet.telemetry import Metrics

logger = logging.getLogger(__name__)

PAGE: Final = 500


class Contact:
    """Since when the database has answered without a break. Pure; times are monotonic seconds.

    A gap between two answers is a break as well, whether a call hung or this process (or the whole machine) was
    paused: the workers may have been paused with it.

    Args:
        most_gap_s: Longest time from one answer to the next, and that one call may take.
    """

    def __init__(self, most_gap_s: float) -> None:
        self._most_gap_s = most_gap_s
        self._since: float | None = None
        self._last = 0.0

    def answered(self, asked_at: float, now: float) -> None:
        """Notes an answer, and when it was asked for."""
        if self._since is None or now - self._last > self._most_gap_s or now - asked_at > self._most_gap_s:
            self._since = now
        self._last = now

    def failed(self) -> None:
        """Notes that no answer came."""
        self._since = None

    def unbroken_for(self, now: float) -> float:
        """Returns the seconds of unbroken contact, 0 without any."""
        return 0.0 if self._since is None else now - self._since


class Rescuer:
    """One replica's rescuer.

    Args:
        lease_ttl_s: Silence after which a worker is dead.
        contact: What the scheduler knows of the database.
    """

    def __init__(
        self,
        store: JobStore,
        ring: Ring,
        metrics: Metrics,
        lease_ttl_s: float,
        contact: Contact,
        clock: Monotonic = time.monotonic,
    ) -> None:
        self._store = store
        self._ring = ring
        self._metrics = metrics
        self._lease_ttl_s = lease_ttl_s
        self._contact = contact
        self._clock = clock

    def step(self) -> RescueOutcome:
        """Rescues one page; changes nothing while the contact is younger than a lease."""
        if self._contact.unbroken_for(self._clock()) < self._lease_ttl_s:
            return RescueOutcome()
        outcome = self._store.rescue(self._lease_ttl_s, PAGE)
        if outcome.ended:
            self._ring.ring([job_id for job_id, _ in outcome.ended])
        if outcome.requeued or outcome.ended or outcome.dead_boots:
            self._count(outcome)
        return outcome

    def _count(self, outcome: RescueOutcome) -> None:
        self._metrics.count_rescue(
            requeued=len(outcome.requeued),
            ended=[state for _, state in outcome.ended],
            dead_boots=len(outcome.dead_boots),
        )
        logger.warning(
            "jobs rescued",
            extra={
                "action": Action.RESCUED,
                "requeued": len(outcome.requeued),
                "ended": len(outcome.ended),
                "dead_boots": list(outcome.dead_boots),
            },
        )
