"""How lengths and counts are rounded up to the shapes that a runtime runs well.

A runtime that takes any shape wants exact lengths; one that compiles per shape wants few of them, all warmed.
"""

from bisect import bisect_left
from dataclasses import dataclass

DEFAULT_BUCKETS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


@dataclass(frozen=True, slots=True)
class LengthBuckets:
    """Rounds a length up to the next bucket; exact where there are none.

    Attributes:
        bounds: Rising bucket lengths; empty for exact lengths. A length above the last is left as it is.
    """

    bounds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if list(self.bounds) != sorted(set(self.bounds)) or any(bound < 1 for bound in self.bounds):
            raise ValueError("bucket bounds must rise and be positive")

    def round_up(self, length: int) -> int:
        """Returns the padded length for a longest item of `length`."""
        place = bisect_left(self.bounds, length)
        return self.bounds[place] if place < len(self.bounds) else length


EXACT = LengthBuckets()
