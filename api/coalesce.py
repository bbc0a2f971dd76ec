"""Coalescing: whatever is asked while one group is being worked on forms the next group.

The synchronous parts (store, ring) live on one thread each. A caller pays the wait for the group before its own
at most, and a busy thread sees few, large groups: the busier, the cheaper each request.
"""

import asyncio
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from batchfleet.errors import OverloadedError, UnavailableError

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")


class Coalescer(Generic[T, R]):
    """Runs `work` on one thread of its own, over groups of what was asked meanwhile.

    Args:
        name: Name of the thread.
        work: Gets a group and returns an outcome for each member, in order; an exception as outcome is raised
            to that member's caller alone. What it raises itself, it raises to the whole group.
        weigh: Size of one member.
        max_group: A group holds members up to this weight, and at least one.
        max_waiting: Over this weight in the queue a further member is refused.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[list[T]], Sequence[R | Exception]],
        *,
        weigh: Callable[[T], int] = lambda _: 1,
        max_group: int = 1_000,
        max_waiting: int = 50_000,
    ) -> None:
        self._name = name
        self._work = work
        self._weigh = weigh
        self._max_group = max_group
        self._max_waiting = max_waiting
        self._waiting: deque[tuple[T, int, asyncio.Future[R]]] = deque()
        self._weight = 0
        self._busy = False
        self._groups: queue.SimpleQueue[list[tuple[T, asyncio.Future[R]]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def start(self) -> None:
        """Starts the thread; call it on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    async def ask(self, item: T) -> R:
        """Returns the outcome of `item`.

        Raises:
            OverloadedError: If too much waits already.
            UnavailableError: If this was closed.
            Exception: What the work answers for this item, or raises for its group.
        """
        if self._loop is None or self._closed:
            raise UnavailableError("this process is shutting down")
        weight = self._weigh(item)
        if self._weight and self._weight + weight > self._max_waiting:
            raise OverloadedError("too many requests wait for the database", retry_after_s=1.0)
        future: asyncio.Future[R] = self._loop.create_future()
        self._waiting.append((item, weight, future))
        self._weight += weight
        if not self._busy:
            self._busy = True
            # Not at once: requests of the same round of the loop still join.
            self._loop.call_soon(self._send_group)
        return await future

    async def close(self) -> None:
        """Finishes what waits and ends the thread; idempotent."""
        self._closed = True
        thread, self._thread = self._thread, None
        if thread is None:
            return
        pending = [future for _, _, future in self._waiting]
        if pending:
            await asyncio.wait(pending)
        self._groups.put(None)
        await asyncio.to_thread(thread.join)

    def _send_group(self) -> None:
        group: list[tuple[T, asyncio.Future[R]]] = []
        total = 0
        while self._waiting and (not group or total + self._waiting[0][1] <= self._max_group):
            item, weight, future = self._waiting.popleft()
            group.append((item, future))
            total += weight
        self._weight -= total
        self._busy = bool(group)
        if group:
            self._groups.put(group)

    def _run(self) -> None:
        while (group := self._groups.get()) is not None:
            outcomes = self._outcomes([item for item, _ in group])
            try:
                self._event_loop().call_soon_threadsafe(self._deliver, group, outcomes)
            except RuntimeError:
                logger.debug("event loop closed under %s", self._name)
                return
            del group, outcomes  # results may be large: they must not live until the next group

    def _outcomes(self, items: list[T]) -> Sequence[R | Exception]:
        try:
            outcomes = self._work(items)
        except Exception as exc:  # noqa: BLE001 - raised to every caller of the group
            return [exc] * len(items)
        if len(outcomes) != len(items):  # a fault of the work's; nobody may wait for ever because of it
            return [RuntimeError(f"{self._name}: {len(outcomes)} outcomes for {len(items)} members")] * len(items)
        return outcomes

    def _deliver(self, group: list[tuple[T, asyncio.Future[R]]], outcomes: Sequence[R | Exception]) -> None:
        for (_, future), outcome in zip(group, outcomes, strict=True):
            if future.done():
                continue  # its caller went away
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        self._send_group()

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError("not started")
        return self._loop
