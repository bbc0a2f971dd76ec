"""What a worker noted and has not told yet; from there to what it tells. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from batchfleet.batching.ceilings import Ceilings
from batchfleet.batching.cost import CostModel, ShapeCost
from batchfleet.batching.plausible import is_pass
from batchfleet.profiles.port import Lesson, Rate

_Passes: TypeAlias = tuple[int, float]
"""How many passes of a shape, and the sum of the logarithms of their seconds: an outlier weighs little so."""
_NEVER: Final[_Passes] = (0, 0.0)


@dataclass(slots=True)
class Notes:
    """What was noted since the fleet was told: passes by (rows, length), what ran out of memory, work done."""

    passes: dict[tuple[int, int], _Passes] = field(default_factory=dict)
    ceilings: Ceilings = field(default_factory=Ceilings)
    work: Rate = field(default_factory=Rate)

    def __bool__(self) -> bool:
        return bool(self.passes or self.ceilings.known or self.work.items)

    def ran(self, count: int, length: int, seconds: float) -> None:
        """Notes a pass of `count` rows padded to `length`."""
        if is_pass(count, length, seconds):
            times, logs = self.passes.get((count, length), _NEVER)
            self.passes[count, length] = (times + 1, logs + math.log(seconds))

    def worked(self, more: Rate) -> None:
        """Notes work that was done."""
        self.work = Rate(
            self.work.items + more.items, self.work.input_bytes + more.input_bytes, self.work.seconds + more.seconds
        )

    def add(self, later: "Notes") -> None:
        """Takes in what was noted later."""
        for shape, (times, logs) in later.passes.items():
            before = self.passes.get(shape, _NEVER)
            self.passes[shape] = (before[0] + times, before[1] + logs)
        self.ceilings = self.ceilings.merged(later.ceilings)
        self.worked(later.work)

    def lesson(self, cost: CostModel) -> Lesson:
        """Returns what to tell; the model of cost knows the fleet's grid of shapes."""
        return Lesson(_at_nodes(cost, self.passes), self.ceilings, self.work)


def _at_nodes(cost: CostModel, passes: Mapping[tuple[int, int], _Passes]) -> tuple[ShapeCost, ...]:
    """Returns what passes cost at the shapes of the fleet's grid that lie nearest to theirs.

    The model of cost only says how a shape compares with its neighbour on the grid; the seconds are those measured.
    """
    grid = [(math.log2(node.count), math.log2(node.length), node) for node in cost.known()]
    found: dict[tuple[int, int], _Passes] = {}
    for (count, length), (times, logs) in passes.items() if grid else ():
        x, y = math.log2(count), math.log2(length)
        node = min(grid, key=lambda place: math.hypot(place[0] - x, place[1] - y))[2]
        moved = math.log(node.seconds / cost.seconds(count, length))
        before = found.get((node.count, node.length), _NEVER)
        found[node.count, node.length] = (before[0] + times, before[1] + logs + times * moved)
    return tuple(
        ShapeCost(count, length, math.exp(logs / times), float(times))
        for (count, length), (times, logs) in found.items()
    )
