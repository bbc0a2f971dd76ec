"""Waiting for many jobs at little cost: when to look, and at which jobs. Pure, apart from the two calls it is given.

A fleet ends jobs roughly in the order of their submission, so the oldest pending ones are looked up first, a
thousand at a time; where those stand still, the next thousand. Between two looks the client does not sleep blindly
but long-polls one of them: the server answers the moment that job ends.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeAlias, TypeVar

from batchfleet.client.errors import WaitTimeoutError

LOOKUP_LIMIT = 1_000
LONGEST_POLL_S = 20.0
"""For how long one request waits for one job; under what proxies bear."""

_SHORTEST_S = 0.02
_LONGEST_S = 2.0

T = TypeVar("T")

LookUp: TypeAlias = Callable[[Sequence[str]], dict[str, T]]
"""Returns what became of each of the jobs that has ended."""
WaitFor: TypeAlias = Callable[[str, float], T | None]
"""Returns what became of the job when it has ended, or None after that many seconds."""


def ended_in_turn(
    ids: Iterable[str],
    *,
    look_up: LookUp[T],
    wait_for: WaitFor[T],
    timeout_s: float | None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[dict[str, T]]:
    """Yields jobs as they end, some at a time, with what became of each.

    Args:
        ids: The jobs; repeated ids count once.
        look_up: Asks which have ended.
        wait_for: Waits for one.
        timeout_s: How long at most; None for ever.
        clock: Monotonic seconds.

    Raises:
        WaitTimeoutError: If they have not all ended after `timeout_s` seconds; those that have were yielded.
    """
    watch = _Watch(list(dict.fromkeys(ids)), look_up, wait_for)
    began = clock()
    while watch.pending:
        if found := watch.look():
            yield found
        elapsed_s = clock() - began
        if not watch.pending:
            return
        if timeout_s is not None and elapsed_s >= timeout_s:
            raise WaitTimeoutError(watch.pending)
        left_s = math.inf if timeout_s is None else timeout_s - elapsed_s
        if held := watch.hold(elapsed_s, left_s):
            yield held


class _Watch(Generic[T]):
    """The jobs that have not ended, and where among them was looked last."""

    def __init__(self, pending: list[str], look_up: LookUp[T], wait_for: WaitFor[T]) -> None:
        self.pending = pending
        self._look_up = look_up
        self._wait_for = wait_for
        self._ended = 0
        self._start = 0
        self._asked = 0
        self._waiting: list[str] = []
        self._polled = False

    def look(self) -> dict[str, T]:
        """Looks up the next thousand, and returns those that have ended."""
        here = slice(self._start, self._start + LOOKUP_LIMIT)
        asked = self.pending[here]
        found = {} if self._polled and len(self.pending) == 1 else self._look_up(asked)  # the poll was the look
        self._waiting = [job_id for job_id in asked if job_id not in found]
        self.pending[here] = self._waiting
        self._asked = len(asked)
        self._ended += len(found)
        # Where nothing ended the next ones are looked at, so that jobs that stand still hide no others.
        self._start = 0 if found else self._start + len(asked)
        if self._start >= len(self.pending):
            self._start = 0
        return found

    def hold(self, elapsed_s: float, left_s: float) -> dict[str, T]:
        """Waits for one of those just looked at, where most of them have not ended; returns it if it has."""
        waiting = self._waiting
        if not waiting or (2 * len(waiting) <= self._asked and len(waiting) < len(self.pending)):
            return {}
        longest_s = LONGEST_POLL_S if len(self.pending) == 1 else _LONGEST_S
        pause_s = pause(len(waiting), ended=self._ended, elapsed_s=elapsed_s, longest_s=longest_s)
        last = waiting[-1]  # when it ends, most of the others have
        fate = self._wait_for(last, min(pause_s, left_s))
        self._polled = fate is None
        if fate is None:
            return {}
        self.pending.remove(last)
        self._ended += 1
        self._start = 0
        return {last: fate}


def wait_for_all(
    ids: Iterable[str],
    *,
    look_up: LookUp[T],
    wait_for: WaitFor[T],
    timeout_s: float | None,
    progress: Callable[[int], None],
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, T]:
    """Returns what became of each job, in the order given; `progress` is called with the number that have ended.

    Raises:
        WaitTimeoutError: If they have not all ended after `timeout_s` seconds.
    """
    order = list(dict.fromkeys(ids))
    ended: dict[str, T] = {}
    for some in ended_in_turn(order, look_up=look_up, wait_for=wait_for, timeout_s=timeout_s, clock=clock):
        ended |= some
        progress(len(ended))
    return {job_id: ended[job_id] for job_id in order}


def pause(left: int, *, ended: int, elapsed_s: float, longest_s: float = _LONGEST_S) -> float:
    """Returns how long `left` jobs may take, judged by the pace so far, within bounds.

    Where nothing has ended yet, a tenth of the time waited so far: an hour's job is not looked at five times a second.
    """
    if longest_s > _LONGEST_S:  # the last one: nothing else can be missed
        return longest_s
    if not ended or elapsed_s <= 0:
        return min(longest_s, max(_SHORTEST_S * 10, elapsed_s / 10))
    return min(longest_s, max(_SHORTEST_S, left * elapsed_s / ended))
