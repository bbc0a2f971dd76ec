"""Assemble: keeps the window of prepared items and has the next batch ready while the device runs.

A device that waits is given a batch by whoever brings the items, with no thread between; else a thread forms it.

One batch is *prefetched*. Until the device takes it, it goes back into the window and is formed anew when
something better may come of it: it was not full and items arrived, or a more urgent lane arrived, or a job of
its was withdrawn or ran out of time.
"""

import threading
import time
from collections.abc import Callable, Hashable, Sequence

from batchfleet.batching.batch import Batch, ReleaseReason, Wait
from batchfleet.batching.ceilings import Ceilings
from batchfleet.batching.cost import ArrivalRate, CostModel
from batchfleet.batching.item import Item
from batchfleet.batching.window import GroupFactory, Window
from batchfleet.clock import Monotonic
from batchfleet.jobs.job import LANES, JobId, Lane
from workers.lease import MayWork
from workers.pacing import rest_s

_FENCE_CHECK_S = 0.2
_ASKED_FOR = (Lane.ONLINE, Lane.STANDARD)
"""Lanes whose callers may be waiting or polling."""

OnExpired = Callable[[Sequence[JobId]], None]


class Assembler:
    """Owns the window. `run` is its thread; the other methods may be called from any.

    Args:
        group_for: What bounds the passes of a key (`batchfleet.batching.window`).
        on_expired: Told which jobs ran out of time before their pass started.
        may_work: Whether passes may start; while not, no batch is handed out.
    """

    def __init__(
        self, group_for: GroupFactory, on_expired: OnExpired, may_work: MayWork, clock: Monotonic = time.monotonic
    ) -> None:
        self._window = Window(group_for)
        self._on_expired = on_expired
        self._may_work = may_work
        self._clock = clock
        self._arrivals = ArrivalRate()
        self._next: Batch | None = None
        self._closed = False
        self._idle = False
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        """Something that the thread of this stage has to look at."""
        self._formed = threading.Condition(self._lock)
        """Something that the device has to look at."""
        self._taken = threading.Condition(self._lock)
        """The device took the batch that waited for it."""

    def add(self, items: Sequence[Item]) -> None:
        """Takes prepared items in. After `close` they are dropped: their jobs are handed back."""
        with self._changed:
            if self._closed or not items:
                return
            self._arrivals = self._arrivals.arrived(len(items), self._clock())
            self._window.add(items)
            if self._next is not None and _may_improve(self._next, items):
                self._unform()
            if not self._serve_idle():
                self._changed.notify()

    def discard(self, job: JobId) -> int:
        """Drops what is left of a job; returns how many items that were."""
        with self._changed:
            if self._next is not None and job in self._next.jobs:
                self._unform()
            dropped = self._window.discard_job(job)
            self._changed.notify()
            return dropped

    def take(self) -> Batch | None:
        """Waits for the next batch and hands it out; None once closed."""
        with self._changed:
            while True:
                if self._closed:
                    return None
                if self._next is not None and self._may_work():
                    batch, self._next = self._next, None
                    for job in batch.jobs:
                        self._window.lift_deadline(job)
                    if len(self._window):
                        self._changed.notify()
                    self._taken.notify()
                    return batch
                self._idle = True
                self._formed.wait(None if self._next is None else _FENCE_CHECK_S)
                self._idle = False

    def rest(self) -> None:
        """Waits while no other item can do the device any good (`pacing.rest_s`)."""
        with self._changed:
            if self._closed or self._idle or self._next is None:
                return
            if seconds := rest_s(item.lane for item in self._next.items):
                self._taken.wait(seconds)

    def update_cost(self, pass_key: Hashable, cost: CostModel) -> None:
        """Replaces what passes of the key are expected to cost."""
        with self._changed:
            self._window.update_cost(pass_key, cost)

    def update_ceilings(self, pass_key: Hashable, ceilings: Ceilings) -> None:
        """Replaces how many rows of the key memory holds; a batch that was formed before is formed anew."""
        with self._changed:
            self._window.update_ceilings(pass_key, ceilings)
            if self._next is not None and self._next.items[0].pass_key == pass_key:
                self._unform()
                self._changed.notify()

    def close(self) -> None:
        """Drops everything and ends `take` and `run`; the jobs are the drain's to hand back."""
        with self._changed:
            self._closed = True
            for condition in (self._changed, self._formed, self._taken):
                condition.notify_all()

    @property
    def backlog(self) -> int:
        """Returns how many items wait, those of the prefetched batch included."""
        with self._changed:
            return len(self._window) + (len(self._next.items) if self._next is not None else 0)

    def spare(self) -> bool:
        """Returns whether the device may be lent for a pass that nobody waits for."""
        with self._changed:
            if self._closed or self._window.holds(_ASKED_FOR) or not self._may_work():
                return False
            return self._next is None or all(item.lane not in _ASKED_FOR for item in self._next.items)

    def idle(self) -> bool:
        """Returns whether nothing waits at all, and the device may be lent for one pass after the other."""
        with self._changed:
            return not self._closed and not len(self._window) and self._next is None and self._may_work()

    def run(self, _stopping: threading.Event) -> None:
        """Forms batches and expires jobs until closed: the body of the thread."""
        while not self._closed:
            expired = self._step()
            if expired:
                # Outside the lock: the callee may call back.
                self._on_expired(expired)

    def _step(self) -> list[JobId]:
        with self._changed:
            now = self._clock()
            if self._next is not None and any(_over(item, now) for item in self._next.items):
                self._unform()
            if expired := self._window.pop_expired(now):
                for job in expired:
                    self._window.discard_job(job)
                return expired
            wake_at = self._form(now)
            if self._closed:
                return []
            if self._next is None or wake_at is not None:
                self._changed.wait(None if wake_at is None else max(0.0, wake_at - now))
            else:
                self._changed.wait()
            return []

    def _form(self, now: float) -> float | None:
        """Forms the next batch if there is none; returns when to look again, if not only on a change."""
        wake_at: float | None = None
        if self._next is None:
            decision = self._window.next_batch(now, self._arrivals.at(now))
            if isinstance(decision, Wait):
                wake_at = decision.until
            else:
                self._next = decision
                self._formed.notify()
        times = [wake_at, self._window.next_deadline()]
        if self._next is not None:
            times += [item.deadline for item in self._next.items]
        return min((moment for moment in times if moment is not None), default=None)

    def _serve_idle(self) -> bool:
        """Forms the batch that an idle device waits for; returns whether the thread has nothing to look at then."""
        if not self._idle or self._has_next():
            return False
        look_again_at = self._form(self._clock())
        return self._has_next() and look_again_at is None

    def _has_next(self) -> bool:
        return self._next is not None

    def _unform(self) -> None:
        if self._next is not None:
            self._window.add(self._next.items)
            self._next = None


def _may_improve(batch: Batch, arrived: Sequence[Item]) -> bool:
    """Returns whether newly arrived items may make a better batch than the one that waits for the device."""
    if batch.reason is ReleaseReason.ALONE:
        return False
    if batch.reason is not ReleaseReason.FULL:
        return True
    most_urgent = min(LANES.index(item.lane) for item in arrived)
    return most_urgent < min(LANES.index(item.lane) for item in batch.items)


def _over(item: Item, now: float) -> bool:
    return item.deadline is not None and item.deadline <= now
