"""Tasks under way, counted, so that a stop lets them end and nothing begins after it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from batchfleet.clock import Monotonic


class UnderWay:
    """A gate through which tasks go; safe to use from any thread."""

    def __init__(self, clock: Monotonic = time.monotonic) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._closed = False
        self._clock = clock

    @property
    def closed(self) -> bool:
        """Whether nothing more is let in."""
        return self._closed

    @contextmanager
    def entered(self) -> Iterator[bool]:
        """Counts a task while it runs; yields False, and counts nothing, once closed."""
        with self._changed:
            entered = not self._closed
            self._running += entered
        try:
            yield entered
        finally:
            with self._changed:
                self._running -= entered
                self._changed.notify_all()

    def close(self, timeout_s: float) -> bool:
        """Lets no more in, waits for those inside; returns whether all have left."""
        with self._changed:
            self._closed = True
            return self._changed.wait_for(lambda: not self._running, timeout_s)
