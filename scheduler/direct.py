"""Runs tasks on threads of our own, a bounded number: without a broker, and where ringing the broker is in vain."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

WAITING_PER_THREAD: Final = 32


class DirectPool:
    """A bounded pool.

    Args:
        threads: Tasks at once.
    """

    def __init__(self, threads: int) -> None:
        self._most = threads * (1 + WAITING_PER_THREAD)
        self._taken = 0
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="direct")

    @property
    def room(self) -> int:
        """How many more tasks it takes now."""
        return self._most - self._taken

    def submit(self, task: Callable[[], object]) -> bool:
        """Takes a task, or returns False if it is full or closed."""
        with self._lock:
            if self._taken >= self._most:
                return False
            self._taken += 1
        try:
            self._pool.submit(self._run, task)
        except RuntimeError:  # closed
            self._left()
            return False
        return True

    def close(self) -> None:
        """Takes no more; what waits is dropped, what runs is left to its end."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, task: Callable[[], object]) -> None:
        try:
            task()
        finally:
            self._left()

    def _left(self) -> None:
        with self._lock:
            self._taken -= 1
