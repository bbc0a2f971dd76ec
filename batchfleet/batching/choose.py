"""Which items share the leader's pass: neighbours by length, as many as lower the device time of all.

An item that joins costs what the pass becomes longer by; left out, it costs its share of a pass of its own kind
later. Neighbours are walked in the order of the padding that they add, and the batch is cut where the sum of what
was saved is largest. So one rule decides how large batches are (an item more would cost more here than elsewhere),
whether two lengths share a pass, and whether a row that padding would waste is better given to a shorter item.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from batchfleet.batching.group import PassGroup
from batchfleet.batching.item import Item
from batchfleet.batching.prices import Tariff, cuts
from batchfleet.batching.queues import LaneQueue
from batchfleet.jobs.job import LANES, Lane

_LIKE_LENGTH = 0.75
"""A back-filled item is at least this share of the padded length."""

_WORTH = 0.002
"""A batch grows only where it saves this share of its seconds: where nothing is saved, shorter passes are better."""

_HOPELESS = 0.1
"""A walk ends where going on has cost this share of the pass's seconds."""

_STRETCH = 1.5
"""Back-filling makes a pass at most so much longer: on devices where rows are not free, an urgent lane stays quick."""

INF = math.inf

Chunk: TypeAlias = tuple[LaneQueue, int, int]
"""A queue, a length, and how many of its items."""


@dataclass(slots=True)
class Choice:
    """What would run with the leader.

    Attributes:
        chunks: Items considered, in the order of the padding that they add; the first `count` of them run.
        longest: Length of the longest that runs.
        full: Whether waiting for more items could not help.
    """

    chunks: list[Chunk]
    count: int = 0
    longest: int = 0
    full: bool = False
    _considered: int = 0
    _saved: float = 0.0
    _most_saved: float = -INF

    @property
    def worth(self) -> float:
        """Returns what its items would cost in passes of their own kind; known once it is settled."""
        return self._saved

    def consider(self, group: PassGroup, chunk: Chunk, tariff: Tariff, longest: int, within_s: float = INF) -> bool:
        """Extends the batch by as much of a chunk as pays; returns whether looking further may.

        Args:
            group: Prices the passes.
            chunk: What to add.
            tariff: Prices of the pass with all of it.
            longest: Longest item with all of it.
            within_s: The pass may last so long.
        """
        lane, length, number = chunk
        own = group.prices.at(length)
        an_item = own.an_item_in(lane.company(length, own.best))
        before, saved, most, efficiency = self._considered, self._saved, self._most_saved, group.efficiency
        value = seconds = 0.0
        known = tariff.known
        for cut in cuts(before, before + number):
            seconds = efficiency * (known.get(cut) or tariff.price(cut))
            value = saved + (cut - before) * an_item - seconds
            if value > most + _WORTH * seconds and seconds <= within_s:
                self.count, self.longest, most = cut, longest, value
        self.chunks.append(chunk)
        self._considered += number
        self._saved += number * an_item
        self._most_saved = most
        if group.buckets.shape_of is not None:
            return True  # costs go in steps: the next may be the one that pays
        return value > most - _HOPELESS * seconds and seconds <= within_s

    def settle(self, group: PassGroup) -> None:
        """Drops what was considered beyond the cut."""
        left, kept = self.count, []
        for lane, length, number in self.chunks:
            if left <= 0:
                break
            kept.append((lane, length, min(number, left)))
            left -= number
        self.chunks = kept
        self._considered = self.count
        self._saved = self._most_saved + group.efficiency * group.prices.at(self.longest).price(self.count)


def choose(group: PassGroup, leader: Item) -> Choice:
    """Returns the items that run with the leader: of its own lane first, then of others."""
    lane, longest = group.lanes[leader.lane], leader.length
    tariff = group.prices.at(longest)
    if tariff.cheapest and lane.count(longest) >= tariff.best:
        # The common case under backlog: no batch is better than the best count of one length, unpadded.
        return Choice([(lane, longest, tariff.best)], tariff.best, longest, True, 0, tariff.best * tariff.an_item)
    choice = Choice([])
    offered = 0
    for chunk, tariff, longest in _neighbours(group, lane, leader.length):
        offered += chunk[2]
        if not choice.consider(group, chunk, tariff, longest):
            break
    passed_over = choice.count < offered
    choice.settle(group)
    if choice.count < len(group):
        _back_fill(group, leader.lane, choice)
    choice.full = passed_over or choice.count >= group.prices.at(choice.longest).best
    return choice


def _neighbours(group: PassGroup, lane: LaneQueue, leading: int) -> Iterator[tuple[Chunk, Tariff, int]]:
    """Yields the leader's length, then its neighbours, least padding first, up to the best count of the longest.

    Each comes with the prices and the longest length of the batch that includes it.
    """
    lengths, at, size = lane.lengths, group.prices.at, lane.count
    longest, tariff = leading, at(leading)
    count = min(size(leading), tariff.best)
    yield (lane, leading, count), tariff, longest
    up = bisect_left(lengths, leading) + 1
    down, end = up - 2, len(lengths)
    while count < tariff.best and (down >= 0 or up < end):
        # A shorter row is padded itself; a longer one pads every row that is there.
        if up < end:
            longer = at(lengths[up])
            if down < 0 or (longer.padded - tariff.padded) * count <= tariff.padded - lengths[down]:
                if count >= longer.best:
                    end = up  # too long for so many, but a shorter one may still fit
                    continue
                longest, tariff, up = lengths[up], longer, up + 1
                number = min(size(longest), tariff.best - count)
                count += number
                yield (lane, longest, number), tariff, longest
                continue
        length, down = lengths[down], down - 1
        number = min(size(length), tariff.best - count)
        count += number
        yield (lane, length, number), tariff, longest


def _back_fill(group: PassGroup, leading: Lane, choice: Choice) -> None:
    """Fills spare places from the other lanes with items of like length.

    Items of a less urgent lane must leave the pass nearly as short as it is.
    """
    tariff = group.prices.at(choice.longest)
    spare, padded = tariff.best - choice.count, tariff.padded
    if spare <= 0:
        return
    stretched = _STRETCH * tariff.price(choice.count)
    urgent = True
    for name in LANES:
        lane = group.lanes[name]
        if name is leading:
            urgent = False
        elif lane.total:
            within = INF if urgent else stretched
            low, high = bisect_left(lane.lengths, padded * _LIKE_LENGTH), bisect_right(lane.lengths, padded)
            for place in range(high - 1, low - 1, -1):
                length = lane.lengths[place]
                number, longest = min(lane.count(length), spare), max(choice.longest, length)
                if number <= 0 or not choice.consider(
                    group, (lane, length, number), group.prices.at(longest), longest, within
                ):
                    break
                spare -= number
    choice.settle(group)
