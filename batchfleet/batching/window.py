"""The window: the prepared items of one worker, and the decision which of them run next.

The rules, in order:

1. The most urgent item *leads* (age plus lane patience, or deadline; `batchfleet.batching.item`). Only items
   of its `pass_key` may join.
2. Items of the leader's lane join by nearest length, cheapest padding first, within the budgets, and as long as
   the padding that one adds costs less than another pass would.
3. Spare places are back-filled from the other lanes with items of like length that add no padding to others.
4. A batch that is full runs. One that is not runs if its leader's delay or slack is used up, or if waiting for
   company does not pay: a further item saves at most the fixed cost of a pass, while each item that waits pays
   the expected time to the next arrival.

Adding is O(log n) an item; a decision is O(log n + batch), however many items the window holds.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import islice

from sortedcontainers import SortedKeyList

from batchfleet.batching.batch import Batch, BatchLimits, ReleaseReason, Wait
from batchfleet.batching.buckets import EXACT, LengthBuckets
from batchfleet.batching.cost import CostModel
from batchfleet.batching.item import Item, ItemKey, Urgency
from batchfleet.jobs.job import LANES, JobId, Lane

_LIKE_LENGTH = 0.75
"""A back-filled item is at least this share of the padded length."""


@dataclass(slots=True)
class PassGroup:
    """The items that may share a pass, by lane and length, and what bounds their passes.

    Attributes:
        alone: Whether its batches are those of a suspect.
    """

    limits: BatchLimits
    cost: CostModel = field(default_factory=CostModel)
    buckets: LengthBuckets = EXACT
    alone: bool = False
    lanes: dict[Lane, "SortedKeyList"] = field(
        default_factory=lambda: {lane: SortedKeyList(key=_by_length) for lane in LANES}
    )

    def __len__(self) -> int:
        return sum(len(items) for items in self.lanes.values())

    @property
    def padding_worth_a_pass(self) -> float:
        """Returns how many padded tokens cost as much as what a pass costs whatever its size."""
        return self.cost.fixed_s / self.cost.per_token_s if self.cost.per_token_s > 0 else math.inf

    def fits(self, count: int, longest: int) -> bool:
        """Returns whether `count` rows with this longest one keep within the budgets."""
        padded = self.buckets.round_up(longest)
        limits = self.limits
        return (
            count <= limits.max_items
            and count * padded <= limits.max_tokens
            and self.cost.seconds(count, padded) <= limits.max_pass_s
        )


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
        self._items: dict[ItemKey, Item] = {}
        self._jobs: dict[JobId, set[ItemKey]] = {}
        self._urgency: list[Urgency] = []
        self._deadlines: list[tuple[float, ItemKey]] = []

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items.values())

    def add(self, items: Iterable[Item]) -> None:
        """Takes items in.

        Raises:
            ValueError: If the window holds an item of that key already.
        """
        for item in items:
            if item.key in self._items:
                raise ValueError(f"item {item.key} is in the window already")
            self._items[item.key] = item
            self._jobs.setdefault(item.job, set()).add(item.key)
            self._group(item.pass_key).lanes[item.lane].add(item)
            heappush(self._urgency, item.urgency)
            if item.deadline is not None:
                heappush(self._deadlines, (item.deadline, item.key))

    def discard_job(self, job: JobId) -> int:
        """Drops what is left of a job; returns how many items that were."""
        keys = self._jobs.get(job, set())
        items = [self._items[key] for key in keys]
        for item in items:
            self._remove(item)
        return len(items)

    def pop_expired(self, now: float) -> list[JobId]:
        """Drops the items whose deadline is over and returns their jobs, each once."""
        jobs: dict[JobId, None] = {}
        while self._deadlines and self._deadlines[0][0] <= now:
            _, key = heappop(self._deadlines)
            item = self._items.get(key)
            if item is not None and item.deadline is not None:
                jobs[item.job] = None
                self._remove(item)
        return list(jobs)

    def lift_deadline(self, job: JobId) -> None:
        """Lets what is left of a job run whenever it may: a deadline bounds the start, and the job has started."""
        for item in [self._items[key] for key in self._jobs.get(job, ())]:
            if item.deadline is not None:
                self._remove(item)
                self.add([replace(item, deadline=None)])

    def next_deadline(self) -> float | None:
        """Returns the earliest deadline of an item in the window."""
        while self._deadlines and not self._bounded(self._deadlines[0][1]):
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def next_batch(self, now: float, arrivals_per_s: float = 0.0, *, flush: bool = False) -> Batch | Wait:
        """Decides: the batch to run now (its items leave the window), or how long to wait.

        Args:
            now: Monotonic seconds.
            arrivals_per_s: Items a second that arrive at present.
            flush: Form a batch even if waiting would pay.
        """
        leader = self._leader()
        if leader is None:
            return Wait()
        group = self._groups[leader.pass_key]
        chosen, full = _choose(group, leader)
        reason = ReleaseReason.ALONE if group.alone else _release(group, chosen, leader, now, arrivals_per_s, full)
        if reason is None and not flush:
            return Wait(until=_wait_until(group, leader, chosen, now))
        for item in chosen:
            self._remove(item)
        chosen.sort(key=_by_length)
        return Batch(tuple(chosen), group.buckets.round_up(chosen[-1].length), reason or ReleaseReason.DRAINED)

    def update_cost(self, pass_key: Hashable, cost: CostModel) -> None:
        """Replaces what passes of the key are expected to cost."""
        if pass_key in self._groups:
            self._groups[pass_key].cost = cost

    def _bounded(self, key: ItemKey) -> bool:
        item = self._items.get(key)
        return item is not None and item.deadline is not None

    def _group(self, key: Hashable) -> PassGroup:
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = self._group_for(key)
        return group

    def _leader(self) -> Item | None:
        while self._urgency:
            item = self._items.get(self._urgency[0][2])
            if item is not None:
                return item
            heappop(self._urgency)
        return None

    def _remove(self, item: Item) -> None:
        del self._items[item.key]
        keys = self._jobs[item.job]
        keys.discard(item.key)
        if not keys:
            del self._jobs[item.job]
        group = self._groups[item.pass_key]
        group.lanes[item.lane].remove(item)
        if not len(group):
            # Keys name suspects and adapters as well: an empty group must not stay behind for ever.
            del self._groups[item.pass_key]


def _by_length(item: Item) -> tuple[int, int]:
    return item.length, item.key


def _choose(group: PassGroup, leader: Item) -> tuple[list[Item], bool]:
    """Returns the items that would run with the leader, and whether a further one would not fit."""
    lane = group.lanes[leader.lane]
    place = lane.index(leader)
    reach = group.limits.max_items
    shorter = list(islice(lane.islice(max(0, place - reach), place, reverse=True), reach))
    longer = list(islice(lane.islice(place + 1, place + 1 + reach), reach))
    chosen, longest, full = _grow(group, leader, shorter, longer)
    if not full:
        full = _back_fill(group, leader.lane, chosen, longest)
    return chosen, full


def _grow(group: PassGroup, leader: Item, shorter: list[Item], longer: list[Item]) -> tuple[list[Item], int, bool]:
    """Takes neighbours by length, the one that adds least padding first, until none fits or pays."""
    chosen, longest = [leader], leader.length
    down, up = 0, 0
    round_up = group.buckets.round_up
    worth = group.padding_worth_a_pass
    while down < len(shorter) or up < len(longer):
        padded = round_up(longest)
        # A shorter row is padded itself; a longer one pads every row that is there.
        waste_down = padded - shorter[down].length if down < len(shorter) else math.inf
        waste_up = (round_up(longer[up].length) - padded) * len(chosen) if up < len(longer) else math.inf
        if min(waste_down, waste_up) > worth:
            break
        take_up = waste_up <= waste_down
        candidate = longer[up] if take_up else shorter[down]
        if not group.fits(len(chosen) + 1, max(longest, candidate.length)):
            if take_up and group.fits(len(chosen) + 1, longest):
                up = len(longer)  # too long for the budget, but a shorter one may still fit
                continue
            return chosen, longest, True
        chosen.append(candidate)
        longest = max(longest, candidate.length)
        up, down = (up + 1, down) if take_up else (up, down + 1)
    return chosen, longest, not group.fits(len(chosen) + 1, longest)


def _back_fill(group: PassGroup, leading: Lane, chosen: list[Item], longest: int) -> bool:
    """Fills spare places from the other lanes with items of like length; returns whether the batch is full."""
    padded = group.buckets.round_up(longest)
    for lane in LANES:
        if lane is leading:
            continue
        for item in group.lanes[lane].irange_key(
            (int(padded * _LIKE_LENGTH), -1), (padded, _ABOVE_ALL_KEYS), reverse=True
        ):
            if not group.fits(len(chosen) + 1, longest):
                return True
            chosen.append(item)
    return not group.fits(len(chosen) + 1, longest)


_ABOVE_ALL_KEYS = 1 << 62


def _release(
    group: PassGroup, chosen: list[Item], leader: Item, now: float, arrivals_per_s: float, full: bool
) -> ReleaseReason | None:
    """Returns why the batch runs now, or None if it is better to wait."""
    if full:
        return ReleaseReason.FULL
    if now - leader.arrived >= group.limits.max_delay_s:
        return ReleaseReason.DELAY
    if leader.deadline is not None and leader.deadline - now <= _pass_seconds(group, chosen):
        return ReleaseReason.SLACK
    saving = group.cost.scale * group.cost.fixed_s
    if arrivals_per_s * saving <= len(chosen):
        return ReleaseReason.DRAINED
    return None


def _wait_until(group: PassGroup, leader: Item, chosen: list[Item], now: float) -> float:
    until = leader.arrived + group.limits.max_delay_s
    if leader.deadline is not None:
        until = min(until, leader.deadline - _pass_seconds(group, chosen))
    return max(until, now)


def _pass_seconds(group: PassGroup, chosen: list[Item]) -> float:
    longest = max(item.length for item in chosen)
    return group.cost.seconds(len(chosen), group.buckets.round_up(longest))
