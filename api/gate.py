"""Whether a submission may come in: the queue's depth, counted now and then and never per request."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from api.cached import CachedRead
from batchfleet.clock import Monotonic, monotonic
from batchfleet.jobs.admission import check_queue
from batchfleet.jobs.job import QueueDepth
from batchfleet.jobs.states import JobState

COUNT_EVERY_S = 2.0


class Gate:
    """Refuses submissions while too many jobs are queued.

    Args:
        count: Counts the queues in the database.
        max_queued: Queued jobs over which nothing is taken.
        clock: Measures the age of the count.
    """

    def __init__(
        self, count: Callable[[], Awaitable[Sequence[QueueDepth]]], max_queued: int, *, clock: Monotonic = monotonic
    ) -> None:
        self._count = count
        self._queued: CachedRead[_Count] = CachedRead(self._count_now, fresh_s=COUNT_EVERY_S, clock=clock)
        self._max_queued = max_queued
        self._admitted = 0

    def admit(self, jobs: int) -> None:
        """Lets `jobs` more in; what was let in since the last count began is added to it.

        Until the first count, and while the database cannot tell, everything is let in: the database itself
        refuses what it cannot take.

        Raises:
            OverloadedError: If the queue would grow over its limit.
        """
        count = self._queued.glance()
        if count is not None:
            check_queue(count.queued + self._admitted - count.admitted_before, jobs, self._max_queued)
        self._admitted += jobs

    async def _count_now(self) -> "_Count":
        # Some of those let in during the count are then counted twice, until the next one: rather that than not.
        admitted_before = self._admitted
        depths = await self._count()
        return _Count(sum(depth.jobs for depth in depths if depth.state is JobState.QUEUED), admitted_before)


@dataclass(frozen=True, slots=True)
class _Count:
    """How many jobs were queued, and how many this process had let in before it was counted."""

    queued: int
    admitted_before: int
