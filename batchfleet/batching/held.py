"""The window's items by job: what is left of each, found when a job is withdrawn or its deadline lifted."""

from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import attrgetter
from typing import TypeAlias

from batchfleet.batching.item import Item, ItemKey
from batchfleet.jobs.job import JobId

_Left: TypeAlias = Item | dict[ItemKey, Item]
"""What is left of a job. Most jobs have one item: a dictionary each took half of the time of taking a batch out."""

_JOB = attrgetter("job")


class HeldItems:
    """Items by job and key."""

    __slots__ = ("_jobs", "count")

    def __init__(self) -> None:
        self.count = 0
        """How many there are."""
        self._jobs: dict[JobId, _Left] = {}

    def __iter__(self) -> Iterator[Item]:
        return (item for job in self._jobs for item in self.of(job))

    def __contains__(self, item: Item) -> bool:
        left = self._jobs.get(item.job)
        return left is item or (isinstance(left, dict) and left.get(item.key) is item)

    def of(self, job: JobId) -> list[Item]:
        """Returns what is left of a job."""
        left = self._jobs.get(job)
        if left is None:
            return []
        return list(left.values()) if isinstance(left, dict) else [left]

    def one_of(self, job: JobId) -> Item | None:
        """Returns any item that is left of a job."""
        left = self._jobs.get(job)
        return next(iter(left.values())) if isinstance(left, dict) else left

    def add(self, item: Item) -> None:
        """Takes an item in.

        Raises:
            ValueError: If an item of that job and key is there already.
        """
        jobs = self._jobs
        if item.job not in jobs:
            jobs[item.job] = item
        else:
            left = jobs[item.job]
            if not isinstance(left, dict):
                left = {left.key: left}
            if item.key in left:
                raise ValueError(f"item {item.key} is in the window already")
            left[item.key] = item
            jobs[item.job] = left
        self.count += 1

    def remove(self, item: Item) -> None:
        """Removes an item that is there."""
        left = self._jobs.pop(item.job)
        if isinstance(left, dict):
            del left[item.key]
            if left:
                self._jobs[item.job] = left
        self.count -= 1

    def take(self, items: Sequence[Item]) -> None:
        """Removes items that are there."""
        left: list[_Left | None] = list(map(self._jobs.pop, map(_JOB, items), repeat(None)))
        if left == items:
            self.count -= len(items)
            return
        # Jobs of several items: what the first of them took along goes back before each is removed by itself.
        for one in left:
            if isinstance(one, dict):
                self._jobs[next(iter(one.values())).job] = one
            elif one is not None:
                self._jobs[one.job] = one
        for item in items:
            self.remove(item)
