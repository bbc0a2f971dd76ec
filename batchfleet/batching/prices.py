"""What the shapes of one group's passes cost, as the window asks for it: remembered, until the cost model moves on.

A decision compares a dozen shapes, and much the same ones again and again; the model behind them changes with each
pass, by a little. So prices are kept for some passes (or until the machine's speed has changed), and those of counts
and lengths between the remembered ones are interpolated. That also keeps decisions from flickering.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from batchfleet.batching.batch import BatchLimits
from batchfleet.batching.buckets import LengthBuckets
from batchfleet.batching.ceilings import Ceilings
from batchfleet.batching.cost import CostModel

DISPATCH_S = 0.0003
"""Seconds that a pass costs outside the device's measurement: forming, recording and handing on a batch.

What a device of its own waits for. Where the same cores compute, claims and settles cost passes as well
(`PassGroup.dispatch_s`).
"""

_NEAR_BEST = 1.01
"""A count whose items cost so little more than at the best count is as good, and its pass is over sooner."""

_SURELY = 0.8
"""A pass estimated at less than this share of its bound need not be looked up to know that it keeps within it."""

_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_INDEX = tuple(max(0, bisect_left(_COUNTS, count)) for count in range(_COUNTS[-1] + 1))
"""Place of the first remembered count that is no smaller."""


Shapes: TypeAlias = dict[tuple[int, int], tuple[int, int]]
"""Rows and length that a count of items in a bucket becomes: remembered whatever the prices are."""


class Tariff:
    """Prices of the passes padded to one length.

    Attributes:
        padded: The length.
        cap: How many items such a batch holds at most: at least one.
        best: The preferred count: the limits' if they name one, else where an item costs least.
        an_item: What an item costs in such a pass of `best` items.
        cheapest: Whether no smaller count makes items cheaper.
        known: Prices asked for so far, by count.
    """

    __slots__ = ("_dispatch_s", "_seconds", "an_item", "best", "cap", "cheapest", "known", "padded")

    def __init__(
        self,
        padded: int,
        cap: int,
        known: dict[int, float],
        preferred: bool,
        seconds: Callable[[int], float],
        dispatch_s: float,
    ) -> None:
        self.padded = padded
        self.cap = cap
        self.known = known
        self.cheapest = not preferred
        self._seconds = seconds
        self._dispatch_s = dispatch_s
        self.price(cap)
        self.best = cap if preferred else _best(known)
        self.an_item = self.price(self.best) / self.best

    def price(self, count: int) -> float:
        """Returns what a pass of `count` items costs, its dispatch included: what decisions compare."""
        found = self.known.get(count)
        if found is None:
            found = self.known[count] = self._seconds(count) + self._dispatch_s
        return found

    def an_item_in(self, company: int) -> float:
        """Returns what an item costs among its own kind, `company` items being there."""
        if company >= self.best:
            return self.an_item
        return self.price(company) / company


class Prices:
    """Prices of passes under given limits. Padding, of rows as well, is counted in."""

    def __init__(
        self,
        limits: BatchLimits,
        cost: CostModel,
        buckets: LengthBuckets,
        ceilings: Ceilings,
        shapes: Shapes,
        dispatch_s: float = DISPATCH_S,
    ) -> None:
        self.scale = cost.scale
        self._dispatch_s = dispatch_s
        self._limits = limits
        self._cost = cost
        self._buckets = buckets
        self._ceilings = ceilings
        self._tariffs: dict[int, Tariff] = {}
        self._curves: dict[int, Sequence[float]] = {}
        self._shapes = shapes
        self._of_shapes: dict[tuple[int, int], float] = {}

    def seconds(self, count: int, longest: int) -> float:
        """Returns the expected seconds of a pass of `count` items with this longest one."""
        return self._cost.seconds(*self._buckets.shape(count, self._buckets.round_up(longest)))

    def at(self, longest: int) -> Tariff:
        """Returns the prices of passes with this longest item."""
        found = self._tariffs.get(longest)
        if found is None:
            padded = self._buckets.round_up(longest)
            found = self._tariffs.get(padded)
            if found is None:
                found = self._tariffs[padded] = self._tariff(padded)
            self._tariffs[longest] = found
        return found

    def _tariff(self, padded: int) -> Tariff:
        cap = self._within_memory(padded)
        if self._buckets.shape_of is None:
            curve, share = self._curve(padded, cap)
            if curve[-1] * share > _SURELY * self._limits.max_pass_s:
                cap = self._within_time(padded, cap)
            seconds = partial(_between, curve, share)
            within = zip(_COUNTS[: bisect_right(_COUNTS, cap)], curve, strict=False)
            known = {count: second * share + self._dispatch_s for count, second in within}
        else:
            cap = self._within_time(padded, cap)
            seconds = partial(self._of_shape, padded)
            known = {count: seconds(count) + self._dispatch_s for count in cuts(0, cap)}
        return Tariff(padded, cap, known, self._limits.preferred_items is not None, seconds, self._dispatch_s)

    def _of_shape(self, padded: int, count: int) -> float:
        found = self._shapes.get((count, padded))
        if found is None:
            found = self._shapes[count, padded] = self._buckets.shape(count, padded)
        seconds = self._of_shapes.get(found)
        if seconds is None:
            seconds = self._of_shapes[found] = self._cost.seconds(*found)
        return seconds

    def _curve(self, padded: int, cap: int) -> tuple[Sequence[float], float]:
        """Returns the seconds of the remembered counts, up to the cap at least, and the factor that they need."""
        coarse = _coarse(padded)
        places = max(1, _INDEX[min(cap, _COUNTS[-1])]) + 1
        curve = self._curves.get(coarse)
        if curve is None or len(curve) < places:
            curve = self._curves[coarse] = self._cost.along(coarse, _COUNTS[:places])
        return curve, padded / coarse

    def _within_memory(self, padded: int) -> int:
        """Returns the largest count within the limits whose shape the device's memory is known to hold."""
        limits = self._limits
        count = max(1, min(limits.max_items, limits.max_tokens // padded, limits.preferred_items or limits.max_items))
        if not self._ceilings.known:
            return count
        while count > 1:
            rows, length = self._buckets.shape(count, padded)
            ceiling = self._ceilings.most_rows(length)
            if ceiling is None or rows <= ceiling:
                break
            count -= 1
        return count

    def _within_time(self, padded: int, most: int) -> int:
        """Returns the largest count up to `most` whose pass keeps within `max_pass_s`, at least 1."""
        limit = self._limits.max_pass_s
        if self.seconds(most, padded) <= limit:
            return most
        low, high = 1, most - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.seconds(middle, padded) <= limit:
                low = middle
            else:
                high = middle - 1
        return low


def _between(curve: Sequence[float], share: float, count: int) -> float:
    """Returns the seconds of a count, interpolated between those of a curve, or on a line beyond its end."""
    place = min(bisect_left(_COUNTS, count), len(curve) - 1)
    seconds, upper = curve[place], _COUNTS[place]
    if upper != count and place > 0:
        lower = _COUNTS[place - 1]
        seconds -= (seconds - curve[place - 1]) * (upper - count) / (upper - lower)
    return share * seconds


def _best(known: Mapping[int, float]) -> int:
    """Returns the smallest count whose items cost about the least."""
    rates = [price / count for count, price in known.items()]
    bound = min(rates) * _NEAR_BEST
    for count, rate in zip(known, rates, strict=True):
        if rate <= bound:
            return count
    raise AssertionError("one of them costs the least")


def cuts(above: int, upto: int) -> tuple[int, ...]:
    """Returns counts in (above, upto] worth comparing: few, and `upto` in any case."""
    return (*_COUNTS[bisect_right(_COUNTS, above) : bisect_left(_COUNTS, upto)], upto)


def _coarse(length: int) -> int:
    """Rounds up to five leading bits, so that few lengths need to be priced."""
    if length <= 32:
        return length
    spare = length.bit_length() - 5
    return -(-length >> spare) << spare
