"""The window: the prepared items of one worker, and the decision which of them run next.

The rules, in order:

1. The most urgent item *leads* (age plus lane patience, or deadline; `batchfleet.batching.item`) and picks the
   length. Only items of its `pass_key` may join. Whatever was passed over leads sooner or later.
2. Items of its lane join by nearest length, as many as lower the device time of all, within the budgets
   (`batchfleet.batching.choose`).
3. Spare places are back-filled from the other lanes with items of like length.
4. A batch that could not be better runs. Another runs if anybody's delay or deadline leaves no more room, or if
   waiting for company does not pay: a further item saves what a pass of its own would cost more, while each item
   that waits pays the expected time to the next arrival.

Adding an item costs O(log n); a decision O(log n) and a step for each length that it takes from.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace

from batchfleet.batching.batch import Batch, ReleaseReason, Wait
from batchfleet.batching.ceilings import Ceilings
from batchfleet.batching.choose import Choice, choose
from batchfleet.batching.cost import CostModel
from batchfleet.batching.group import PassGroup
from batchfleet.batching.held import HeldItems
from batchfleet.batching.item import Item
from batchfleet.batching.queues import Entry, Heads, LaneQueue, Moments
from batchfleet.jobs.job import JobId, Lane

__all__ = ["GroupFactory", "PassGroup", "Window"]

GroupFactory = Callable[[Hashable], PassGroup]
"""Says what bounds the passes of a key seen for the first time."""


class Window:
    """Holds items and forms batches from them. Not thread-safe: its owner guards it.

    Args:
        group_for: Called once for each `pass_key` that appears while the window holds no item of it.
    """

    def __init__(self, group_for: GroupFactory) -> None:
        self._group_for = group_for
        self._groups: dict[Hashable, PassGroup] = {}
        self._held = HeldItems()
        self._urgent = Heads(_due)
        self._oldest = Heads(_arrived)
        self._deadlines = Moments(self._held.__contains__)

    def __len__(self) -> int:
        return self._held.count

    def __iter__(self) -> Iterator[Item]:
        return iter(self._held)

    def add(self, items: Iterable[Item]) -> None:
        """Takes items in.

        Raises:
            ValueError: If the window holds an item of that job and key already.
        """
        pass_key, group, hold = None, None, self._held.add
        for item in items:
            hold(item)
            due, key = item.urgency
            if group is None or item.pass_key is not pass_key:
                pass_key = item.pass_key
                group = self._group(pass_key)
            queue = group.lanes[item.lane]
            if queue.add((due, key, item)):
                self._lead(queue, item.length)
            if item.deadline is not None:
                self._deadlines.add(item.deadline, item)

    def discard_job(self, job: JobId) -> int:
        """Drops what is left of a job; returns how many items that were."""
        items = self._held.of(job)
        for item in items:
            self._remove(item)
        self._tidy()
        return len(items)

    def pop_expired(self, now: float) -> list[JobId]:
        """Drops the items whose deadline is over and returns their jobs, each once."""
        jobs: dict[JobId, None] = {}
        while (due := self._deadlines.first()) is not None and due[0] <= now:
            jobs[due[1].job] = None
            self._remove(due[1])
        self._tidy()
        return list(jobs)

    def lift_deadline(self, job: JobId) -> None:
        """Lets what is left of a job run whenever it may: a deadline bounds the start, and the job has started."""
        first = self._held.one_of(job)
        if first is None or first.deadline is None:
            return  # the items of a job share its deadline: a large job without one is not walked for each batch
        bounded = [item for item in self._held.of(job) if item.deadline is not None]
        for item in bounded:
            self._remove(item)
        self.add(replace(item, deadline=None) for item in bounded)

    def next_deadline(self) -> float | None:
        """Returns the earliest deadline of an item in the window."""
        due = self._deadlines.first()
        return None if due is None else due[0]

    def holds(self, lanes: Iterable[Lane]) -> bool:
        """Returns whether there is an item of one of these lanes; a step for each pass key."""
        return any(group.lanes[lane].total for group in self._groups.values() for lane in lanes)

    def next_batch(self, now: float, arrivals_per_s: float = 0.0, *, flush: bool = False) -> Batch | Wait:
        """Decides: the batch to run now (its items leave the window), or how long to wait.

        Args:
            now: Monotonic seconds.
            arrivals_per_s: Items a second that arrive at present.
            flush: Form a batch even if waiting would pay.
        """
        leader = self._urgent.first()
        if leader is None:
            return Wait()
        group = self._groups[leader.pass_key]
        choice = choose(group, leader)
        reason = _not_to_wait(group, choice, arrivals_per_s)
        if reason is None:
            by_delay, by_deadline = self._latest(group, choice)
            latest = min(by_delay, by_deadline)
            if now >= latest:
                reason = ReleaseReason.DELAY if now >= by_delay else ReleaseReason.SLACK
            elif not flush:
                return Wait(until=latest)
        group.formed(choice.worth, choice.count, choice.longest)
        _, padded = group.buckets.shape(choice.count, choice.longest)
        return Batch(self._take(leader.pass_key, choice), padded, reason or ReleaseReason.DRAINED)

    def update_cost(self, pass_key: Hashable, cost: CostModel) -> None:
        """Replaces what passes of the key are expected to cost."""
        if pass_key in self._groups:
            self._groups[pass_key].learn_cost(cost)

    def update_ceilings(self, pass_key: Hashable, ceilings: Ceilings) -> None:
        """Replaces how many rows the device's memory is known to hold in passes of the key."""
        if pass_key in self._groups:
            self._groups[pass_key].learn_ceilings(ceilings)

    def _latest(self, group: PassGroup, choice: Choice) -> tuple[float, float]:
        """Returns the moments from which nothing waits for company: by the delay of batching, and by a deadline.

        Of whatever is held, in any lane or group: the device would idle, and let it wait or expire, for company of
        the leader's.
        """
        first = self._oldest.first()
        # A queue is in the order of urgency: behind a deadline there may be an older item.
        chosen = (item for queue, length, number in choice.chunks for item in queue.front(length, number))
        oldest = min(item.arrived for item in (*chosen, *(() if first is None else (first,))))
        due = self.next_deadline()
        by_deadline = math.inf if due is None else due - group.seconds(choice.count, choice.longest)
        return oldest + group.limits.max_delay_s, by_deadline

    def _take(self, pass_key: Hashable, choice: Choice) -> tuple[Item, ...]:
        """Removes what was chosen; returns it shortest first."""
        taken: list[Item] = []
        chunks = choice.chunks
        if len(chunks) > 1:
            chunks = sorted(chunks, key=_by_length)
        for queue, length, number in chunks:
            taken += queue.take(length, number)
            self._lead(queue, length)
        self._held.take(taken)
        self._forget_if_empty(pass_key)
        self._tidy()
        return tuple(taken)

    def _remove(self, item: Item) -> None:
        self._held.remove(item)
        queue = self._groups[item.pass_key].lanes[item.lane]
        if queue.remove((item.urgency[0], item.key, item)):
            self._lead(queue, item.length)
        if not queue.total:
            self._forget_if_empty(item.pass_key)

    def _group(self, key: Hashable) -> PassGroup:
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = self._group_for(key)
        return group

    def _forget_if_empty(self, key: Hashable) -> None:
        # Keys name suspects and adapters as well: an empty group must not stay behind for ever.
        if not self._groups[key]:
            del self._groups[key]

    def _lead(self, queue: LaneQueue, length: int) -> None:
        """Notes that a queue has another first item of a length."""
        self._urgent.add(queue, length)
        self._oldest.add(queue, length)

    def _tidy(self) -> None:
        for heap in (self._deadlines, self._urgent, self._oldest):
            heap.tidy(self._held.count)


def _not_to_wait(group: PassGroup, choice: Choice, arrivals_per_s: float) -> ReleaseReason | None:
    """Returns why waiting for company is no good, whatever the time; None if it may be."""
    if group.alone:
        return ReleaseReason.ALONE
    if choice.full:
        return ReleaseReason.FULL
    if arrivals_per_s * group.saving(choice.count, choice.longest) <= choice.count:
        return ReleaseReason.DRAINED
    return None


def _due(entry: Entry) -> float:
    return entry[0]


def _arrived(entry: Entry) -> float:
    return entry[2].arrived


def _by_length(chunk: tuple[LaneQueue, int, int]) -> int:
    return chunk[1]
