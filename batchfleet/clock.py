"""Clocks as values: whoever decides about time takes one, so that tests own time.

Two kinds are kept apart. *Monotonic* seconds measure waits inside one machine; *wall* seconds (Unix epoch)
are what the database stores, and only the store reads them.
"""

import time
from collections.abc import Callable
from typing import TypeAlias

Monotonic: TypeAlias = Callable[[], float]
"""Returns seconds on this machine's monotonic clock (comparable between its processes on Linux)."""

Wall: TypeAlias = Callable[[], float]
"""Returns seconds since the Unix epoch."""

monotonic: Monotonic = time.monotonic
wall: Wall = time.time


class ManualClock:
    """A clock that stands still until it is told to move; both a `Monotonic` and a `Wall`."""

    def __init__(self, now: float = 1_000.0) -> None:
        self._now = now

    def __call__(self) -> float:
        """Returns the present reading in seconds."""
        return self._now

    def advance(self, seconds: float) -> float:
        """Moves the clock on and returns the new reading.

        Raises:
            ValueError: If `seconds` is negative.
        """
        if seconds < 0:
            raise ValueError("a clock cannot go back")
        self._now += seconds
        return self._now
