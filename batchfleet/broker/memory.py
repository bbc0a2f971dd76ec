"""In-memory doubles of both ports, for tests; they pass the same contract suites as the real adapters."""

import queue
import threading
from collections import deque
from collections.abc import Sequence

from batchfleet.broker.hint import Flow, Hint
from batchfleet.broker.port import RingListener
from batchfleet.errors import BrokerUnavailableError
from batchfleet.jobs.job import JobId
from batchfleet.lifecycle import ServiceThread


class MemoryHub:
    """What a broker server is to adapters: the place that several of them share."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.queues: dict[str, deque[Hint]] = {}
        self.rings: list[queue.SimpleQueue[tuple[JobId, ...]]] = []
        self.down = False
        """Set by tests: every call then fails as with a broker that is away."""

    def check(self) -> None:
        """Raises `BrokerUnavailableError` while the hub is down."""
        if self.down:
            raise BrokerUnavailableError("the hub is down")


class MemoryBroker:
    """Hints in the memory of this process (`HintBroker`)."""

    def __init__(self, hub: MemoryHub | None = None) -> None:
        self._hub = MemoryHub() if hub is None else hub
        self._interrupted = False

    def publish(self, hints: Sequence[Hint]) -> None:
        """Puts hints into their queues."""
        with self._hub.changed:
            self._hub.check()
            for hint in hints:
                self._hub.queues.setdefault(hint.flow.queue, deque()).append(hint)
            self._hub.changed.notify_all()

    def pull(self, flows: Sequence[Flow], max_hints: int, wait_s: float) -> list[Hint]:
        """Takes hints, from the first flows first."""
        with self._hub.changed:
            self._hub.check()
            if wait_s > 0:
                self._hub.changed.wait_for(lambda: self._interrupted or self._hub.down or self._any(flows), wait_s)
                self._interrupted = False
            self._hub.check()
            return self._take(flows, max_hints)

    def depth(self, flow: Flow) -> int:
        """Returns the length of the flow's queue."""
        with self._hub.changed:
            self._hub.check()
            return len(self._hub.queues.get(flow.queue, ()))

    def interrupt(self) -> None:
        """Ends a wait, or the next one."""
        with self._hub.changed:
            self._interrupted = True
            self._hub.changed.notify_all()

    def close(self) -> None:
        """Holds nothing."""

    def _any(self, flows: Sequence[Flow]) -> bool:
        return any(self._hub.queues.get(flow.queue) for flow in flows)

    def _take(self, flows: Sequence[Flow], max_hints: int) -> list[Hint]:
        taken: list[Hint] = []
        for flow in flows:
            waiting = self._hub.queues.get(flow.queue, deque())
            while waiting and len(taken) < max_hints:
                taken.append(waiting.popleft())
        return taken


class MemoryRing:
    """Rings in the memory of this process (`Ring`)."""

    def __init__(self, hub: MemoryHub | None = None) -> None:
        self._hub = MemoryHub() if hub is None else hub
        self._arrived: queue.SimpleQueue[tuple[JobId, ...]] = queue.SimpleQueue()
        self._listener: RingListener | None = None
        self._thread = ServiceThread("memory-ring", self._run, wake=lambda: self._arrived.put(()))
        self.subscribed = threading.Event()

    def ring(self, ids: Sequence[JobId]) -> None:
        """Tells all listeners of the hub."""
        if ids and not self._hub.down:
            for listener in self._hub.rings:
                listener.put(tuple(ids))

    def listen(self, listener: RingListener) -> None:
        """Starts calling the listener on a thread of its own."""
        self._listener = listener
        self._hub.rings.append(self._arrived)
        self._thread.start()
        self.subscribed.set()

    def close(self) -> None:
        """Stops the thread."""
        if self._arrived in self._hub.rings:
            self._hub.rings.remove(self._arrived)
        self._thread.stop()
        self._thread.join()

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            ids = self._arrived.get()
            if ids and self._listener is not None:
                self._listener(ids)
