"""No broker at all: workers find their work in the database, and waiters look it up."""

import threading
from collections.abc import Sequence

from batchfleet.broker.hint import Flow, Hint
from batchfleet.broker.port import RingListener
from batchfleet.jobs.job import JobId


class NoBroker:
    """Carries nothing (`HintBroker`): a hint that is published is lost, and a pull is only a pause."""

    def __init__(self) -> None:
        self._interrupted = threading.Event()

    def publish(self, hints: Sequence[Hint]) -> None:
        """Does nothing."""

    def pull(self, flows: Sequence[Flow], max_hints: int, wait_s: float) -> list[Hint]:  # noqa: ARG002 - the port's
        """Waits until interrupted, or `wait_s`."""
        if wait_s > 0 and self._interrupted.wait(wait_s):
            self._interrupted.clear()
        return []

    def depth(self, flow: Flow) -> int:  # noqa: ARG002 - the port's
        """Returns 0."""
        return 0

    def interrupt(self) -> None:
        """Ends a pause, or the next one."""
        self._interrupted.set()

    def close(self) -> None:
        """Holds nothing."""


class NullRing:
    """Rings for nobody (`Ring`): without a broker, the API's own coalesced look-up is what waiters rely on."""

    def ring(self, ids: Sequence[JobId]) -> None:
        """Does nothing."""

    def listen(self, listener: RingListener) -> None:
        """Never calls the listener."""

    def close(self) -> None:
        """Holds nothing."""
