"""The items that may share a pass, and what bounds and prices their passes."""

from dataclasses import dataclass, field

from batchfleet.batching.batch import BatchLimits
from batchfleet.batching.buckets import EXACT, LengthBuckets
from batchfleet.batching.ceilings import UNBOUNDED, Ceilings
from batchfleet.batching.cost import CostModel
from batchfleet.batching.prices import DISPATCH_S, Prices, Shapes
from batchfleet.batching.queues import LaneQueue
from batchfleet.jobs.job import LANES, Lane

_REPRICE_FIRST = 8
_REPRICE_GROWTH = 4
_REPRICE_LAST = 512
"""Prices are asked anew after so many passes, at first, and the more seldom the more is known."""

_REPRICE_SCALE = 1.2
_USUAL_EFFICIENCY = 0.97
_EFFICIENCY_BOUNDS = (0.8, 1.0)
_SMOOTHING = 0.1


@dataclass(slots=True)
class PassGroup:
    """The items that may share a pass, by lane and length, and what bounds their passes.

    Attributes:
        alone: Whether its batches are those of a suspect.
        ceilings: What the device's memory has been seen to hold.
        dispatch_s: Seconds that a pass costs the device beside its own.
        efficiency: What batches have reached of late, as a share of the cost of items among their own kind. An item
            that is left out can hope for no better, and a lone leader is worth company that is dearer than that.
    """

    limits: BatchLimits
    cost: CostModel = field(default_factory=CostModel)
    buckets: LengthBuckets = EXACT
    alone: bool = False
    ceilings: Ceilings = UNBOUNDED
    dispatch_s: float = DISPATCH_S
    lanes: dict[Lane, LaneQueue] = field(default_factory=lambda: {lane: LaneQueue() for lane in LANES})
    prices: Prices = field(init=False)
    efficiency: float = _USUAL_EFFICIENCY
    _shapes: Shapes = field(default_factory=dict)
    _stale: int = 0
    _reprice_after: int = _REPRICE_FIRST

    def __post_init__(self) -> None:
        self._reprice()

    def __len__(self) -> int:
        total = 0
        for lane in self.lanes.values():
            total += lane.total
        return total

    def fits(self, count: int, longest: int) -> bool:
        """Returns whether `count` rows with this longest one keep within the budgets and the device's memory."""
        return count <= self.prices.at(longest).cap

    def seconds(self, count: int, longest: int) -> float:
        """Returns the expected seconds of a pass of `count` items with this longest one."""
        return self.prices.seconds(count, longest)

    def saving(self, count: int, longest: int) -> float:
        """Returns what one more item of that length saves by joining such a pass instead of running alone."""
        price = self.prices.at(longest).price
        return price(count) + price(1) - price(count + 1)

    def formed(self, worth: float, count: int, longest: int) -> None:
        """Notes what the items of a batch would have cost in passes of their own kind, to know how well we do."""
        low, high = _EFFICIENCY_BOUNDS
        reached = worth / self.prices.at(longest).price(count)
        self.efficiency += _SMOOTHING * (min(high, max(low, reached)) - self.efficiency)

    def learn_cost(self, cost: CostModel) -> None:
        """Takes a newer model; prices follow after some passes, or at once if the machine's speed has changed."""
        self.cost = cost
        self._stale += 1
        drift = cost.scale / self.prices.scale
        if self._stale >= self._reprice_after or not 1 / _REPRICE_SCALE < drift < _REPRICE_SCALE:
            self._reprice_after = min(_REPRICE_LAST, _REPRICE_GROWTH * self._reprice_after)
            self._reprice()

    def learn_ceilings(self, ceilings: Ceilings) -> None:
        """Takes newer ceilings, which hold from the next decision on."""
        if ceilings != self.ceilings:
            self.ceilings = ceilings
            self._reprice()

    def _reprice(self) -> None:
        self.prices = Prices(self.limits, self.cost, self.buckets, self.ceilings, self._shapes, self.dispatch_s)
        self._stale = 0
