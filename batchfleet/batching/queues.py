"""Where the window keeps its items: a queue for each lane and length, and heaps that forget lazily.

A batch takes neighbours in blocks, so one slice of a list serves a whole length.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from operator import itemgetter
from typing import TypeAlias

from batchfleet.batching.item import Item, ItemKey

Entry: TypeAlias = tuple[float, ItemKey, Item]
"""When the item is due, its key (which settles ties, so that items are never compared), and the item."""


_ITEM = itemgetter(2)

_NEAR = 0.8
"""Items down to this share of a length count as company of its kind."""


_Head: TypeAlias = "tuple[float, ItemKey, int, int, LaneQueue]"
"""Rank of the first item of a length, its key (which settles ties), a serial number, the length, the lane's queue."""


class LaneQueue:
    """The items of one lane of a group: a queue for each length, most urgent first."""

    __slots__ = ("_queues", "lengths", "total")

    def __init__(self) -> None:
        self.lengths: list[int] = []
        """Lengths of which there are items, rising."""
        self.total = 0
        """All items of the lane."""
        self._queues: dict[int, list[Entry]] = {}

    def front(self, length: int, count: int) -> Iterator[Item]:
        """Yields the `count` most urgent items of a length."""
        return (entry[2] for entry in self._queues[length][:count])

    def add(self, entry: Entry) -> bool:
        """Takes an item in; returns whether it is now the first of its length."""
        length = entry[2].length
        self.total += 1
        queue = self._queues.get(length)
        if queue is None:
            self._queues[length] = [entry]
            insort(self.lengths, length)
            return True
        if entry > queue[-1]:
            queue.append(entry)
            return False
        insort(queue, entry)
        return queue[0] is entry

    def count(self, length: int) -> int:
        """Returns how many items of exactly this length there are."""
        return len(self._queues[length])

    def company(self, length: int, enough: int) -> int:
        """Returns how many items of this length or somewhat shorter there are, counted up to about `enough`."""
        queues, lengths = self._queues, self.lengths
        found = len(queues[length])
        if found < enough:
            shortest = length * _NEAR
            place = bisect_left(lengths, length) - 1
            while place >= 0 and found < enough and lengths[place] >= shortest:
                found += len(queues[lengths[place]])
                place -= 1
        return found

    def first(self, length: int) -> Entry | None:
        """Returns the most urgent item of a length."""
        queue = self._queues.get(length)
        return queue[0] if queue else None

    def take(self, length: int, count: int) -> list[Item]:
        """Removes and returns the `count` most urgent items of a length."""
        queue = self._queues[length]
        self.total -= count
        taken = list(map(_ITEM, queue[:count]))
        if count == len(queue):
            self._drop(length)
        else:
            del queue[:count]
        return taken

    def remove(self, entry: Entry) -> bool:
        """Removes one item; returns whether it was the first of its length."""
        length = entry[2].length
        queue = self._queues[length]
        place = bisect_left(queue, entry)
        del queue[place]
        self.total -= 1
        if not queue:
            self._drop(length)
        return place == 0

    def _drop(self, length: int) -> None:
        del self._queues[length]
        del self.lengths[bisect_left(self.lengths, length)]


class Heads:
    """The first items of queues, by a rank of theirs, the lowest first. Former firsts are forgotten by and by.

    Args:
        rank: Orders items; what it says of one never changes.
    """

    __slots__ = ("_heap", "_rank", "_serial")

    def __init__(self, rank: Callable[[Entry], float]) -> None:
        self._heap: list[_Head] = []
        self._rank = rank
        self._serial = count()

    def add(self, queue: LaneQueue, length: int) -> None:
        """Notes that a queue has another first item of this length; it may be empty by now."""
        first = queue.first(length)
        if first is not None:
            heappush(self._heap, (self._rank(first), first[1], next(self._serial), length, queue))

    def first(self) -> Item | None:
        """Returns the item of the lowest rank of those that are first in their queue now."""
        heap = self._heap
        while heap:
            head = heap[0]
            first = head[4].first(head[3])
            if first is not None and first[1] == head[1]:
                return first[2]
            heappop(heap)
        return None

    def tidy(self, held: int) -> None:
        """Forgets the former once they outnumber the `held` items: amortised, a step an item."""
        if len(self._heap) > 2 * held + 64:
            self._heap = list({head[1]: head for head in self._heap if _leads(head)}.values())
            heapify(self._heap)


def _leads(head: _Head) -> bool:
    first = head[4].first(head[3])
    return first is not None and first[1] == head[1]


class Moments:
    """Moments at which something is due to an item, earliest first. Items that are gone are forgotten by and by."""

    __slots__ = ("_heap", "_holds", "_serial")

    def __init__(self, holds: Callable[[Item], bool]) -> None:
        self._heap: list[tuple[float, int, Item]] = []
        self._holds = holds
        self._serial = count()

    def add(self, moment: float, item: Item) -> None:
        """Notes a moment."""
        heappush(self._heap, (moment, next(self._serial), item))

    def first(self) -> tuple[float, Item] | None:
        """Returns the earliest moment of an item that is still there."""
        heap = self._heap
        while heap:
            moment, _, item = heap[0]
            if self._holds(item):
                return moment, item
            heappop(heap)
        return None

    def tidy(self, held: int) -> None:
        """Forgets the gone once they outnumber the `held`: amortised, a step an item."""
        if len(self._heap) > 2 * held + 64:
            # Once each: an item that left and came back has a moment from either time.
            self._heap = list({entry[2].key: entry for entry in self._heap if self._holds(entry[2])}.values())
            heapify(self._heap)
