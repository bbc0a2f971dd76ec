"""Assemble: keeps the window of prepared items and has the next batch ready while the device runs.

One batch is *prefetched*. Until the device takes it, it goes back into the window and is formed anew when
something better may come of it: it was not full and items arrived, or a more urgent lane arrived, or a job of
its was withdrawn or ran out of time.
"""

import threading
import time
from collections.abc import Callable, Hashable, Sequence

from batchfleet.batching.batch import Batch, ReleaseReason, Wait
from batchfleet.batching.cost import ArrivalRate, CostModel
from batchfleet.batching.item import Item
from batchfleet.batching.window import GroupFactory, Window
from batchfleet.clock import Monotonic
from batchfleet.jobs.job import LANES, JobId
from workers.lease import MayWork

_FENCE_CHECK_S = 0.2

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
        self._changed = threading.Condition()

    def add(self, items: Sequence[Item]) -> None:
        """Takes prepared items in. After `close` they are dropped: their jobs are handed back."""
        with self._changed:
            if self._closed or not items:
                return
            self._arrivals = self._arrivals.arrived(len(items), self._clock())
            self._window.add(items)
            if self._next is not None and _may_improve(self._next, items):
                self._unform()
            self._changed.notify_all()

    def discard(self, job: JobId) -> int:
        """Drops what is left of a job; returns how many items that were."""
        with self._changed:
            if self._next is not None and job in self._next.jobs:
                self._unform()
            dropped = self._window.discard_job(job)
            self._changed.notify_all()
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
                    self._changed.notify_all()
                    return batch
                self._changed.wait(None if self._next is None else _FENCE_CHECK_S)

    def update_cost(self, pass_key: Hashable, cost: CostModel) -> None:
        """Replaces what passes of the key are expected to cost."""
        with self._changed:
            self._window.update_cost(pass_key, cost)

    def close(self) -> None:
        """Drops everything and ends `take` and `run`; the jobs are the drain's to hand back."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def backlog(self) -> int:
        """Returns how many items wait, those of the prefetched batch included."""
        with self._changed:
            return len(self._window) + (len(self._next.items) if self._next is not None else 0)

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
                self._changed.notify_all()
        times = [wake_at, self._window.next_deadline()]
        if self._next is not None:
            times += [item.deadline for item in self._next.items]
        return min((moment for moment in times if moment is not None), default=None)

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
