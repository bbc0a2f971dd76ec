"""Who may use one of a few threads next, and whether asking makes sense at all. No I/O; not thread-safe."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from batchfleet.errors import OverloadedError


@dataclass(slots=True, eq=False)
class Turn:
    """One call that has a thread, or waits for one.

    Attributes:
        tenant: Whose it is.
        go: Called once when it has a thread.
    """

    tenant: str
    go: Callable[[], None]


class Turns:
    """Deals out threads: to each tenant a share at most, and first to whom has fewest.

    Args:
        threads: How many there are.
        share: How many of them one tenant may hold, so that the others always find one.
        waiting: Calls that may wait in all.
        waiting_each: Calls of one tenant that may wait.
        retry_after_s: What is told to whom may not even wait.
    """

    def __init__(self, threads: int, share: int, waiting: int, waiting_each: int, *, retry_after_s: float) -> None:
        self._free = threads
        self._share = share
        self._most = waiting
        self._most_each = waiting_each
        self._retry_after_s = retry_after_s
        self._running: Counter[str] = Counter()
        self._waiting: dict[Turn, None] = {}

    def ask(self, turn: Turn) -> None:
        """Takes a call in; it goes at once, or later.

        Raises:
            OverloadedError: If too many wait already.
        """
        ours = sum(one.tenant == turn.tenant for one in self._waiting)
        if len(self._waiting) >= self._most or ours >= self._most_each:
            raise OverloadedError(
                "too many results are being read from the blob store", retry_after_s=self._retry_after_s
            )
        self._waiting[turn] = None
        self._deal()

    def forget(self, turn: Turn) -> bool:
        """Removes a call that waits no longer. Returns False if it has its thread already: `done` ends that."""
        if turn not in self._waiting:
            return False
        del self._waiting[turn]
        return True

    def done(self, turn: Turn) -> None:
        """Takes back the thread of a call."""
        self._free += 1
        self._running[turn.tenant] -= 1
        if not self._running[turn.tenant]:
            del self._running[turn.tenant]
        self._deal()

    def _deal(self) -> None:
        while self._free:
            able = [turn for turn in self._waiting if self._running[turn.tenant] < self._share]
            if not able:
                return
            turn = min(able, key=lambda one: self._running[one.tenant])  # the first of them: who came first
            del self._waiting[turn]
            self._free -= 1
            self._running[turn.tenant] += 1
            turn.go()


class Circuit:
    """Opens when calls time out one after another, so that the next ones are refused at once instead of waiting.

    Args:
        limit: Timeouts without an answer in between after which it opens.
        pause_s: Seconds after which one call is let through, to find out.
        probe_s: Seconds after which that call counts as lost, and another one is.
    """

    def __init__(self, limit: int = 3, pause_s: float = 5.0, probe_s: float = 40.0) -> None:
        self._limit = limit
        self._pause_s = pause_s
        self._probe_s = probe_s
        self._timeouts = 0
        self._ask_at = 0.0

    def lets(self, now: float) -> bool:
        """Returns whether a call may be made at this time, in seconds of a monotonic clock."""
        if self._timeouts < self._limit:
            return True
        if now < self._ask_at:
            return False
        self._ask_at = now + self._probe_s
        return True

    def timed_out(self, now: float) -> None:
        """Notes a call that was not answered in time."""
        self._timeouts += 1
        self._ask_at = now + self._pause_s

    def answered(self) -> None:
        """Notes an answer, whatever it was."""
        self._timeouts = 0
