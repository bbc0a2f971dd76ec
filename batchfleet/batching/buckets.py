"""How lengths and counts are rounded up to the shapes that a runtime runs well.

A runtime that takes any shape wants exact lengths and counts; one that compiles per shape wants few of both, all
warmed (`batchfleet.inference.shapes`).
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias


class PaddedShape(Protocol):
    """Rows and length of a pass as it runs, padding included."""

    @property
    def rows(self) -> int:
        """Rows, of which the last may be padding."""
        ...

    @property
    def length(self) -> int:
        """Length of each row, of which the last may be padding."""
        ...


ShapeOf: TypeAlias = Callable[[int, int], PaddedShape]
"""Says in which shape a count of items with a longest one runs. Asked within the model's limits only."""


@dataclass(frozen=True, slots=True)
class LengthBuckets:
    """Rounds lengths and counts up to what exists; exact where nothing is given.

    Attributes:
        bounds: Rising bucket lengths; empty for exact shapes. A length above the last is left as it is.
        shape_of: Where counts are rounded as well (and lengths perhaps further): the shape of a pass.
    """

    bounds: tuple[int, ...] = ()
    shape_of: ShapeOf | None = None

    def __post_init__(self) -> None:
        if list(self.bounds) != sorted(set(self.bounds)) or any(bound < 1 for bound in self.bounds):
            raise ValueError("bucket bounds must rise and be positive")

    def round_up(self, length: int) -> int:
        """Returns the padded length for a longest item of `length`: of a full batch, if counts matter as well."""
        place = bisect_left(self.bounds, length)
        return self.bounds[place] if place < len(self.bounds) else length

    def shape(self, count: int, longest: int) -> tuple[int, int]:
        """Returns rows and length of the pass of `count` items with this longest one."""
        if self.shape_of is None or not self.bounds:
            return count, self.round_up(longest)
        shape = self.shape_of(count, longest)
        return shape.rows, shape.length


EXACT = LengthBuckets()
