"""What a pass costs: a smooth base, a learned correction around each measured shape, and the machine's mood.

`seconds(n, L) = scale * (fixed + per_token*n*L + per_square*n*L*L) * correction(n, L)`

The base has the terms that a transformer has: what any pass costs, linear layers, attention. The correction is a
surface over (log rows, log length), interpolated between nodes, since caches, kernels and threads make batches
cheaper or dearer than any formula says. Warm-up fits both; each pass then moves the nodes around its shape, and
`scale`, which follows a machine that got slower as a whole (or a neighbour that left).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from batchfleet.batching.least_squares import fit_relative
from batchfleet.batching.plausible import is_pass, is_weight

_SCALE_GAIN = 0.1
_SCALE_BOUNDS = (0.05, 20.0)
_OUTLIER = math.log(1.5)
"""A pass counts as at most so much slower or faster than expected: one that was descheduled must not rule the next."""

_NODE_PRIOR = 3.0
_NODE_MEMORY = 20.0
_NODE_BOUND = math.log(4.0)
_LENGTH_STEPS = 2.0
"""Nodes an octave of length; counts have one."""

_MOST_ROWS_LOG = 10.0
_COLUMNS = 11
_MOST_LENGTH_LOG = 14.0
_LEAST_LENGTH_LOG = 3.0
_SWEEPS = 4
_SWEEP_GAIN = 0.5
_FLEET_WEIGHT = 8.0
"""What the fleet knows counts as so many passes at most: a machine's own passes soon outweigh it."""

Node: TypeAlias = tuple[float, float]
"""Logarithm of the correction, and how many passes it rests on."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured pass: `count` rows padded to `length`, and its seconds."""

    count: int
    length: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ShapeCost:
    """What is known of one shape, as the fleet keeps it.

    Attributes:
        count: Rows.
        length: Padded length.
        seconds: Expected seconds of the pass.
        weight: How many passes that rests on, about (old ones fade).
    """

    count: int
    length: int
    seconds: float
    weight: float


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds of a pass by its rows and padded length.

    Attributes:
        fixed_s: Seconds that any pass costs.
        per_token_s: Seconds for each padded token.
        scale: How much slower the machine is now than when the model was fitted.
        per_square_s: Seconds for each row and squared padded length (attention).
        nodes: Corrections of the base, by node of the (log rows, log length) grid; missing ones correct nothing.
    """

    fixed_s: float = 0.001
    per_token_s: float = 0.0001
    scale: float = 1.0
    per_square_s: float = 0.0
    nodes: Mapping[int, Node] = field(default_factory=dict, hash=False)

    def seconds(self, count: int, length: int) -> float:
        """Returns the expected seconds of a pass of `count` rows padded to `length`."""
        base = self.scale * (self.fixed_s + count * length * (self.per_token_s + self.per_square_s * length))
        nodes = self.nodes
        if not nodes:
            return base
        correction = 0.0
        for key, share in _around(count, length):
            node = nodes.get(key)
            if node is not None:
                correction += share * node[0]
        return base * math.exp(correction)

    def along(self, length: int, counts: Sequence[int]) -> list[float]:
        """Returns `seconds` of several counts at one length, in a third of the time that asking for each takes."""
        scaled, rows = self.scale * self.fixed_s, self.scale * length * (self.per_token_s + self.per_square_s * length)
        nodes = self.nodes
        if not nodes:
            return [scaled + count * rows for count in counts]
        y = min(_MOST_LENGTH_LOG, max(_LEAST_LENGTH_LOG, math.log2(max(1, length)))) * _LENGTH_STEPS
        place = int(y)
        share = y - place
        columns = [
            (1 - share) * nodes.get(key, _NOTHING)[0] + share * nodes.get(key + 1, _NOTHING)[0]
            for key in range(place, place + (_COLUMNS << 6), 64)
        ]
        found = []
        for count in counts:
            x = min(_MOST_ROWS_LOG, math.log2(max(1, count)))
            column = int(x)
            u = x - column
            correction = columns[column] + (u * (columns[column + 1] - columns[column]) if u else 0.0)
            found.append((scaled + count * rows) * math.exp(correction))
        return found

    def observed(self, count: int, length: int, seconds: float) -> "CostModel":
        """Returns the model after one more pass was timed."""
        if not is_pass(count, length, seconds):
            return self
        expected = self.seconds(count, length)
        if not 0 < expected < math.inf:
            return self
        error = min(_OUTLIER, max(-_OUTLIER, math.log(seconds / expected)))
        low, high = _SCALE_BOUNDS
        scale = min(high, max(low, self.scale * math.exp(_SCALE_GAIN * error)))
        nodes = dict(self.nodes)
        for key, share in _around(count, length):
            value, weight = nodes.get(key, _NOTHING)
            moved = value + error * (1 - _SCALE_GAIN) * share / (_NODE_PRIOR + weight)
            nodes[key] = (min(_NODE_BOUND, max(-_NODE_BOUND, moved)), min(_NODE_MEMORY, weight + share))
        return CostModel(self.fixed_s, self.per_token_s, scale, self.per_square_s, nodes)

    def known(self) -> tuple[ShapeCost, ...]:
        """Returns what was learned, at the nodes of a coarse grid: some tens of shapes, at most a few hundred."""
        shapes = ((*_shape(key), weight) for key, (_, weight) in sorted(self.nodes.items()))
        return tuple(ShapeCost(n, length, self.seconds(n, length), weight) for n, length, weight in shapes)


_NOTHING: Node = (0.0, 0.0)


def fit(samples: Iterable[Sample]) -> CostModel:
    """Fits a model to measured passes; no coefficient is negative.

    Relative errors count, because a pass of 2 ms matters as much to the decision as one of 200 ms.
    Returns the defaults where fewer than two different sizes were measured.
    """
    return _fit([ShapeCost(s.count, s.length, s.seconds, 1.0) for s in samples if _plausible(s)])


def learned(known: Iterable[ShapeCost], measured: Iterable[Sample]) -> CostModel:
    """Fits a model to what the fleet knows, brought to the speed of this machine and refined by its own passes.

    Args:
        known: From `CostModel.known` of other workers (or of this one's past); may be empty.
        measured: This machine's warm-up; may be empty, and then the fleet's figures are taken as they are.
    """
    own = [sample for sample in measured if _plausible(sample)]
    fleet = [replace(s, weight=min(_FLEET_WEIGHT, s.weight)) for s in known if _plausible(s) and is_weight(s.weight)]
    if len({s.count * s.length for s in fleet}) < 2:
        return fit(own)
    model = _fit(fleet)
    ratios = sorted(sample.seconds / model.seconds(sample.count, sample.length) for sample in own)
    speed = ratios[len(ratios) // 2] if ratios else 1.0
    model = replace(
        model,
        fixed_s=model.fixed_s * speed,
        per_token_s=model.per_token_s * speed,
        per_square_s=model.per_square_s * speed,
    )
    return _corrected(model, [ShapeCost(s.count, s.length, s.seconds, 1.0) for s in own])


def _plausible(shape: Sample | ShapeCost) -> bool:
    return is_pass(shape.count, shape.length, shape.seconds)


def _fit(shapes: Sequence[ShapeCost]) -> CostModel:
    if len({shape.count * shape.length for shape in shapes}) < 2:
        return CostModel()
    rows = [(1.0, float(s.count * s.length), float(s.count * s.length**2)) for s in shapes]
    fixed, per_token, per_square = fit_relative(rows, [s.seconds for s in shapes], [s.weight for s in shapes])
    if not 0 < fixed + per_token + per_square < math.inf:
        return CostModel()  # nothing fits them: figures of different worlds
    return _corrected(CostModel(fixed, per_token, per_square_s=per_square), shapes)


def _corrected(model: CostModel, shapes: Sequence[ShapeCost]) -> CostModel:
    """Bends the surface towards measured shapes, most of the way: they are noisy as well."""
    nodes = dict(model.nodes)
    bent = replace(model, nodes=nodes)
    for _ in range(_SWEEPS):
        for shape in shapes:
            error = math.log(shape.seconds / bent.seconds(shape.count, shape.length))
            error = min(_NODE_BOUND, max(-_NODE_BOUND, error))
            for key, share in _around(shape.count, shape.length):
                value, weight = nodes.get(key, _NOTHING)
                nodes[key] = (min(_NODE_BOUND, max(-_NODE_BOUND, value + _SWEEP_GAIN * share * error)), weight)
    for shape in shapes:
        for key, share in _around(shape.count, shape.length):
            value, weight = nodes[key]
            nodes[key] = (value, min(_NODE_MEMORY, weight + share * shape.weight))
    return bent


def _around(count: int, length: int) -> list[tuple[int, float]]:
    """Returns the nodes around a shape and their shares in it (bilinear in the logarithms)."""
    x = min(_MOST_ROWS_LOG, math.log2(max(1, count)))
    y = min(_MOST_LENGTH_LOG, max(_LEAST_LENGTH_LOG, math.log2(max(1, length)))) * _LENGTH_STEPS
    i, j = int(x), int(y)
    u, v = x - i, y - j
    key = i << 6 | j
    if not u:
        return [(key, 1 - v), (key + 1, v)] if v else [(key, 1.0)]
    if not v:
        return [(key, 1 - u), (key + 64, u)]
    return [(key, (1 - u) * (1 - v)), (key + 1, (1 - u) * v), (key + 64, u * (1 - v)), (key + 65, u * v)]


def _shape(key: int) -> tuple[int, int]:
    return 1 << (key >> 6), round(2 ** ((key & 63) / _LENGTH_STEPS))


@dataclass(frozen=True, slots=True)
class ArrivalRate:
    """An estimate of items a second, by exponentially forgetting averages over `horizon_s`.

    Attributes:
        rate: Items a second, as of `updated_at`.
    """

    horizon_s: float = 1.0
    rate: float = 0.0
    updated_at: float | None = None

    def arrived(self, count: int, now: float) -> "ArrivalRate":
        """Returns the estimate after `count` items arrived at `now` (monotonic seconds)."""
        return replace(self, rate=self.at(now) + count / self.horizon_s, updated_at=now)

    def at(self, now: float) -> float:
        """Returns the estimate at `now`: it decays while nothing comes."""
        if self.updated_at is None:
            return 0.0
        quiet = max(0.0, now - self.updated_at)
        return self.rate * math.exp2(-quiet / self.horizon_s)
