"""The sweep: one cheap read a second says which of relay, expire and rescue has anything to do.

An idle scheduler thus costs the database one read a second, and none of the three has a timer of its own.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Final

from batchfleet.clock import Monotonic
from batchfleet.errors import StoreUnavailableError
from batchfleet.jobs.store import JobStore
from batchfleet.logs import Action, OutageLog
from batchfleet.pulse import Pulse
from scheduler.expire import Expirer
from scheduler.relay import Relay
from scheduler.rescue import Contact, Rescuer

logger = logging.getLogger(__name__)

_AWAY_S: Final = 2.0
_MAX_ROUNDS: Final = 50
"""Pages of one kind in a row, so that a flood of one kind does not keep the others waiting."""


class Sweep:
    """Runs the three loops' steps as they become due. `run` is its thread.

    Args:
        interval_s: Seconds between two reads.
        pulse: Shows that the loop goes round, also while the database is away.
        lease_ttl_s: Silence after which a worker is dead.
    """

    def __init__(
        self,
        store: JobStore,
        relay: Relay,
        expirer: Expirer,
        rescuer: Rescuer,
        contact: Contact,
        *,
        interval_s: float,
        lease_ttl_s: float,
        pulse: Pulse | None = None,
        clock: Monotonic = time.monotonic,
    ) -> None:
        self._store = store
        self._relay = relay
        self._expirer = expirer
        self._rescuer = rescuer
        self._contact = contact
        self._interval_s = interval_s
        self._lease_ttl_s = lease_ttl_s
        self._pulse = pulse
        self._clock = clock
        self._outage = OutageLog(logger, "the database", Action.STORE_UNAVAILABLE, clock)
        self._random = random.Random()  # noqa: S311 - jitter

    def run(self, stopping: threading.Event) -> None:
        """Sweeps until stopped: the body of the thread."""
        while not stopping.is_set():
            wait_s = self._interval_s if self.once() else _AWAY_S
            if self._pulse is not None:
                self._pulse.beat()
            # Jittered, so that replicas do not all ask at the same moment.
            stopping.wait(wait_s * (0.75 + self._random.random() / 2))

    def once(self) -> bool:
        """Does what is due now; returns whether the database answered."""
        try:
            asked_at = self._clock()
            due = self._store.due(self._lease_ttl_s)
            self._contact.answered(asked_at, self._clock())
            if due.expire:
                _drain(self._expirer.step)
            if due.announce:
                _drain(self._relay.step)
            if due.rescue:
                _drain(self._rescue)
        except StoreUnavailableError as error:
            self._contact.failed()
            self._outage.failed(error)
            return False
        self._outage.worked()
        return True

    def _rescue(self) -> int:
        outcome = self._rescuer.step()
        return len(outcome.requeued) + len(outcome.ended)


def _drain(step: Callable[[], int]) -> None:
    for _ in range(_MAX_ROUNDS):
        if not step():
            return
