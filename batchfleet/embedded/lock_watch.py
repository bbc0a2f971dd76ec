"""Finds a process that hangs while it holds SQLite's write lock: it would stop the whole fleet."""

import time
from collections.abc import Callable
from pathlib import Path

from batchfleet.database.write_lock import LockHolder, read_lock_holder

BOUND_S = 15.0
"""A transaction takes milliseconds; even a slow disk's flush does not take this long."""


class LockWatch:
    """Read it every few seconds.

    Args:
        lock_file: The lock's side file.
        bound_s: How long one holder may hold it.
        read: Says who holds it now.
        clock: The clock of `LockHolder.since`.
    """

    def __init__(
        self,
        lock_file: Path,
        *,
        bound_s: float = BOUND_S,
        read: Callable[[Path], LockHolder | None] = read_lock_holder,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock_file = lock_file
        self._bound_s = bound_s
        self._read = read
        self._clock = clock
        self._last: LockHolder | None = None

    def overdue(self) -> int | None:
        """Returns the pid of a holder that two readings in a row saw, and that holds the lock for too long."""
        last, self._last = self._last, self._read(self._lock_file)
        if self._last is None or self._last != last:
            return None  # a single reading may show a new holder under the old one's name
        return last.pid if self._clock() - last.since > self._bound_s else None
