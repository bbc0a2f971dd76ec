"""What a pass costs: a line through what was measured, kept honest while the worker runs.

`seconds ≈ scale × (fixed + per_token × padded tokens)`. Warm-up fits the line; each pass then moves `scale`,
so that a machine that got slower (or a neighbour that left) is noticed within some ten passes. A learned model
per shape is a later step; the window needs only that more padded tokens cost more.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

_SMOOTHING = 0.1
_SCALE_BOUNDS = (0.05, 20.0)


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured pass: `count` rows padded to `length`, and its seconds."""

    count: int
    length: int
    seconds: float


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds of a pass by its padded tokens.

    Attributes:
        fixed_s: Seconds that any pass costs.
        per_token_s: Seconds for each padded token.
        scale: How much slower the machine is now than when the line was fitted.
    """

    fixed_s: float = 0.001
    per_token_s: float = 0.0001
    scale: float = 1.0

    def seconds(self, count: int, length: int) -> float:
        """Returns the expected seconds of a pass of `count` rows padded to `length`."""
        return self.scale * (self.fixed_s + self.per_token_s * count * length)

    def observed(self, count: int, length: int, seconds: float) -> "CostModel":
        """Returns the model after one more pass was timed."""
        expected = self.seconds(count, length)
        if expected <= 0 or seconds <= 0:
            return self
        low, high = _SCALE_BOUNDS
        # The ratio is bounded: one pass that was descheduled for a second must not rule the next fifty.
        ratio = min(3.0, max(1 / 3, seconds / expected))
        moved = self.scale * (1 + _SMOOTHING * (ratio - 1))
        return replace(self, scale=min(high, max(low, moved)))


def fit(samples: Iterable[Sample]) -> CostModel:
    """Fits the line by least squares over relative errors; both coefficients stay non-negative.

    Relative errors, because a pass of 2 ms matters as much to the decision as one of 200 ms.
    Returns the defaults where fewer than two different sizes were measured.
    """
    points = [(s.count * s.length, s.seconds) for s in samples if s.seconds > 0]
    if len({tokens for tokens, _ in points}) < 2:
        return CostModel()
    weights = [1 / (seconds * seconds) for _, seconds in points]
    total = sum(weights)
    mean_x = sum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
    mean_y = sum(w * y for w, (_, y) in zip(weights, points, strict=True)) / total
    spread = sum(w * (x - mean_x) ** 2 for w, (x, _) in zip(weights, points, strict=True))
    slope = sum(w * (x - mean_x) * (y - mean_y) for w, (x, y) in zip(weights, points, strict=True)) / spread
    if slope <= 0:
        return CostModel(fixed_s=mean_y, per_token_s=0.0)
    fixed = mean_y - slope * mean_x
    if fixed < 0:
        return CostModel(fixed_s=0.0, per_token_s=mean_y / mean_x)
    return CostModel(fixed_s=fixed, per_token_s=slope)


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
