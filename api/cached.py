"""Reads whose answer may be a moment old, so that a flood of requests costs one read."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from batchfleet.clock import Monotonic, monotonic

R = TypeVar("R")


class CachedRead(Generic[R]):
    """Keeps the answer of `read` for a while; at most one read is under way.

    Args:
        read: Reads afresh.
        fresh_s: For how long an answer is good.
        clock: Measures that.
    """

    def __init__(self, read: Callable[[], Awaitable[R]], *, fresh_s: float, clock: Monotonic = monotonic) -> None:
        self._read = read
        self._fresh_s = fresh_s
        self._clock = clock
        self._answer: R | None = None
        self._asked_at = float("-inf")
        self._answered_at = float("-inf")
        self._reading: asyncio.Task[R] | None = None

    async def get(self) -> R:
        """Returns a good answer; what the read raises is raised."""
        if self._answer is not None and self._clock() < self._answered_at + self._fresh_s:
            return self._answer
        # Shielded: a caller that goes away must not take the answer from the others.
        return await asyncio.shield(self._start())

    def glance(self) -> R | None:
        """Returns the last answer, good or not, without waiting; an old one is read again in the background.

        A read that fails is not tried again at once: a database that is down gets no read with each request.
        """
        if self._clock() >= self._asked_at + self._fresh_s:
            self._start().add_done_callback(_ignore_failure)
        return self._answer

    def _start(self) -> asyncio.Task[R]:
        if self._reading is None:
            self._asked_at = self._clock()
            self._reading = asyncio.ensure_future(self._refresh())
        return self._reading

    async def _refresh(self) -> R:
        try:
            answer = await self._read()
        finally:
            self._reading = None
        self._answer = answer
        self._answered_at = self._clock()
        return answer


def _ignore_failure(task: asyncio.Task[R]) -> None:
    """Whoever only glances is content with the old answer."""
    if not task.cancelled():
        task.exception()
