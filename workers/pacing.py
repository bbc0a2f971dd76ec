"""When a worker talks to the database: not more often than somebody gains by it. Pure.

A transaction costs about as much for one job as for thirty. A caller who waits has it at once; what nobody waits for
is put together with what the next passes bring, as long as there are any and the window has room for more work.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from batchfleet.jobs.job import Lane

LINGER_S: Final[Mapping[Lane, float]] = {Lane.ONLINE: 0.0, Lane.STANDARD: 0.05, Lane.BULK: 0.5}
"""How long the end of a job may wait for the ends of others, while the worker has more to do."""

MOST_ROWS: Final = 64
MOST_BYTES: Final = 1024 * 1024
WINDOW_SHARE: Final = 0.125
"""Part of the window that ended jobs may keep others out of."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """What has ended and is not settled yet.

    Attributes:
        until: Monotonic time by which it is to be settled.
        rows: Jobs.
        items: Items of these jobs, which still take room of the window.
        size: Bytes of their results.
    """

    until: float = float("inf")
    rows: int = 0
    items: int = 0
    size: int = 0

    def joined(self, now: float, lane: Lane, *, items: int, size: int, succeeded: bool) -> "Waiting":
        """Returns what waits after one more job has ended. Only what succeeded lingers."""
        until = min(self.until, now + (LINGER_S[lane] if succeeded else 0.0))
        return Waiting(until, self.rows + 1, self.items + items, self.size + size)

    def left_s(self, now: float, *, backlog: int, capacity: int) -> float | None:
        """Returns the seconds until the settle: 0 for now, None while nothing waits.

        Args:
            now: Monotonic time.
            backlog: Items that wait for the device; without any nothing else is going to join.
            capacity: Items that the window may hold.
        """
        if not self.rows:
            return None
        full = self.rows >= MOST_ROWS or self.size >= MOST_BYTES or self.items >= capacity * WINDOW_SHARE
        return 0.0 if full or not backlog else max(0.0, self.until - now)


REST_S: Final = 0.004
"""How long a worker with enough to do leaves arriving hints to each other's company."""


def rest_s(prefetched: Iterable[Lane]) -> float:
    """Returns how long to wait for more hints before the next pull.

    A device that runs, with a batch behind it whose callers wait, gains nothing by a claim of one job more: that job
    has its turn after them. It does gain where the batch holds no urgent job, which a more urgent one would displace.

    Args:
        prefetched: The lanes of the batch that waits for the device; none if none does.
    """
    return REST_S if Lane.ONLINE in prefetched else 0.0


def idle_backlog_s(idle_from: float, now: float, enqueued: Iterable[float]) -> float:
    """Returns for how long a device idled although there was work, told by the batch that it got in the end.

    If one of its items was due when the device became free, there was work all the time: in the window, being
    prepared, in the broker or in the database. If none was, the device waited for work to come.

    Args:
        idle_from: Monotonic time at which the device became free.
        now: Monotonic time at which it got the batch.
        enqueued: When the items of the batch were due, on the same clock.
    """
    return max(0.0, now - idle_from) if min(enqueued, default=now) <= idle_from else 0.0
