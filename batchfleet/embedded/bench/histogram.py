"""A histogram of latencies with a stated relative error (the layout of HdrHistogram). Pure.

Values are whole microseconds. Up to 2,048 each has a cell of its own; above, each doubling is cut into 1,024 cells,
so that a cell is never wider than 1/1,024 of its values: three digits hold, at 1 ms and at 10 minutes alike. Two
histograms add up exactly, which percentiles do not. (Gil Tene's HdrHistogram with three significant digits; decision
record 0026 says why this is not the package of that name.)
"""

from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

RELATIVE_ERROR: Final = 1 / 1024
"""A percentile is over the true value by so much at most, and never under it."""
LONGEST_US: Final = 1 << 32
"""Longer ones (71 minutes) count as this."""

_BITS: Final = 11
_EXACT: Final = 1 << _BITS
_HALF: Final = _EXACT >> 1
_CELLS: Final = _EXACT + (LONGEST_US.bit_length() - _BITS) * _HALF


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts by cell; `of` makes one, `+` adds two."""

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(_CELLS, np.int64))

    @classmethod
    def of(cls, seconds: ArrayLike) -> Self:
        """Returns the histogram of latencies in seconds; negative ones count as 0.

        Raises:
            ValueError: If one is no number.
        """
        values = np.asarray(seconds, np.float64) * 1e6
        if np.isnan(values).any():
            raise ValueError("a latency is a number")
        cells = _cells_of(np.clip(np.ceil(values), 0, LONGEST_US).astype(np.int64))
        return cls(np.bincount(cells, minlength=_CELLS).astype(np.int64))

    def __add__(self, other: "Histogram") -> "Histogram":
        return Histogram(self.counts + other.counts)

    def __len__(self) -> int:
        return int(self.counts.sum())

    def percentile_ms(self, share: float) -> float:
        """Returns the milliseconds that `share` percent of the values do not exceed; NaN of an empty one."""
        total = len(self)
        if not total:
            return float("nan")
        rank = max(1, int(np.ceil(share / 100 * total)))
        cell = int(np.searchsorted(np.cumsum(self.counts), rank))
        return _highest_us(cell) / 1e3

    def percentiles_ms(self) -> dict[str, float]:
        """Returns p50, p90, p99, p99.9 and the largest, in milliseconds, rounded to microseconds."""
        shares = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p999": 99.9, "max": 100.0}
        return {name: round(self.percentile_ms(share), 3) for name, share in shares.items()} if len(self) else {}


def _cells_of(values: NDArray[np.int64]) -> NDArray[np.int64]:
    # frexp's exponent is the bit length; exact, since a float holds 53 bits.
    bits = np.frexp(values.astype(np.float64))[1].astype(np.int64)
    shift: NDArray[np.int64] = np.maximum(bits - _BITS, 0)
    cells: NDArray[np.int64] = shift * _HALF + (values >> shift)
    return cells


def _highest_us(cell: int) -> int:
    """Returns the largest value of a cell."""
    if cell < _EXACT:
        return cell
    shift = cell // _HALF - 1
    return ((cell - shift * _HALF + 1) << shift) - 1
