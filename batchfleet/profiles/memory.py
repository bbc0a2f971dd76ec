"""What is learned, kept in the process: for tests, and for who has no database. See `ProfileStore`."""

import threading
from dataclasses import dataclass, field

from batchfleet import clock
from batchfleet.batching.ceilings import Ceiling, Ceilings
from batchfleet.batching.cost import ShapeCost
from batchfleet.profiles.port import MOST_WEIGHT, UNUSED_S, KnownRate, Lesson, Profile, ProfileKey, Rate
from batchfleet.profiles.reading import plausible_ceilings, plausible_costs, plausible_rate


@dataclass(slots=True)
class _Row:
    told_at: float
    costs: dict[tuple[int, int], ShapeCost] = field(default_factory=dict)
    ceilings: Ceilings = field(default_factory=Ceilings)
    rate: Rate = field(default_factory=Rate)


class MemoryProfiles:
    """A `ProfileStore` in memory.

    Args:
        wall: The time.
    """

    def __init__(self, wall: clock.Wall = clock.wall) -> None:
        self._wall = wall
        self._rows: dict[ProfileKey, _Row] = {}
        self._lock = threading.Lock()

    def load(self, key: ProfileKey) -> Profile:
        """Returns what is known of a key; an empty profile if that is nothing."""
        with self._lock:
            return self._profile(key)

    def tell(self, key: ProfileKey, lesson: Lesson) -> None:
        """Adds what a worker learned; see `ProfileStore.tell`."""
        now = self._wall()
        with self._lock:
            row = self._rows.setdefault(key, _Row(now))
            row.told_at = now
            row.rate = row.rate.plus(plausible_rate(lesson.work))
            for told in plausible_costs(lesson.costs):
                row.costs[told.length, told.count] = _mean(row.costs.get((told.length, told.count)), told)
            told_of = Ceilings(tuple(Ceiling(c.length, c.rows, min(c.at, now)) for c in lesson.ceilings.known))
            if (told_of := plausible_ceilings(told_of)).known:
                row.ceilings = row.ceilings.merged(told_of).regrown(now)

    def find(self, model: str, version: str | None = None) -> list[tuple[ProfileKey, Profile]]:
        """Returns the profiles of a model (of one version, if given), by key."""
        with self._lock:
            keys = [key for key in sorted(self._rows) if key.model == model and version in {None, key.version}]
            return [(key, self._profile(key)) for key in keys]

    def rates(self) -> list[KnownRate]:
        """Returns the rates of all keys, by key."""
        now = self._wall()
        with self._lock:
            return [
                KnownRate(key, row.rate, now - row.told_at)
                for key, row in sorted(self._rows.items(), key=lambda entry: entry[0])
            ]

    def purge(self, unused_s: float = UNUSED_S) -> int:
        """Removes the profiles that no worker has told of for so long; returns how many."""
        before = self._wall() - unused_s
        with self._lock:
            gone = [key for key, row in self._rows.items() if row.told_at < before]
            for key in gone:
                del self._rows[key]
            return len(gone)

    def close(self) -> None:
        """Does nothing."""

    def _profile(self, key: ProfileKey) -> Profile:
        now = self._wall()
        row = self._rows.get(key)
        if row is None:
            return Profile((), Ceilings(), Rate(), None, now)
        costs = tuple(row.costs[shape] for shape in sorted(row.costs))
        return Profile(costs, row.ceilings, row.rate, now - row.told_at, now)


def _mean(known: ShapeCost | None, told: ShapeCost) -> ShapeCost:
    if known is None:
        return told
    weight = known.weight + told.weight
    seconds = (known.seconds * known.weight + told.seconds * told.weight) / weight
    return ShapeCost(told.count, told.length, seconds, min(MOST_WEIGHT, weight))
