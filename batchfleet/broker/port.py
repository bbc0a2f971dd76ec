"""The ports to the broker: hints for workers, and the ring for waiters.

One contract suite (`tests/contract/test_broker_contract.py`) holds every adapter, the in-memory double included,
to what is written here. Losing a hint or a ring is allowed; hanging, or failing a caller's request, is not.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from batchfleet.broker.hint import Flow, Hint
from batchfleet.jobs.job import JobId

RingListener = Callable[[Sequence[JobId]], None]
"""Called on the ring's own thread with ids of jobs that ended; must not block."""


class HintBroker(Protocol):
    """Carries hints. An instance is used by one thread at a time, except `interrupt`, which any may call."""

    def publish(self, hints: Sequence[Hint]) -> None:
        """Sends hints in as few commands as the broker allows.

        Raises:
            BrokerUnavailableError: If they could not be sent within the adapter's deadline (2 s). The next call
                connects again.
        """
        ...

    def pull(self, flows: Sequence[Flow], max_hints: int, wait_s: float) -> list[Hint]:
        """Takes up to `max_hints` hints, from the first flows first, without blocking while any is there.

        A message that is no hint is dropped and counted.

        Args:
            flows: In the order in which they are to be emptied.
            max_hints: At most this many.
            wait_s: How long to wait for a first hint if there is none; 0 not at all. Without flows it is a pause.

        Raises:
            BrokerUnavailableError: If the broker cannot be reached. The next call connects again.
        """
        ...

    def depth(self, flow: Flow) -> int:
        """Returns how many hints of the flow lie in the broker.

        Raises:
            BrokerUnavailableError: If the broker cannot be reached.
        """
        ...

    def interrupt(self) -> None:
        """Makes a waiting `pull` (or else the next one that would wait) return at once; callable from any thread.

        It does not go through the broker, so it works while the broker hangs. No hint gets lost by it: what the
        pull has in its hands it returns.
        """
        ...

    def close(self) -> None:
        """Gives up connections; idempotent."""
        ...


class Ring(Protocol):
    """Tells waiters in every API process that jobs ended."""

    def ring(self, ids: Sequence[JobId]) -> None:
        """Tells all listeners, in one publish; never raises for a broker that is down (it is counted)."""
        ...

    def listen(self, listener: RingListener) -> None:
        """Starts calling the listener, on a thread of the ring's, reconnecting by itself with backoff."""
        ...

    def close(self) -> None:
        """Stops the thread and gives up connections; idempotent."""
        ...
