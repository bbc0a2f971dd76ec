"""Which padded shape a pass gets.

A runtime that takes any shape pads to the longest item and no further. One that compiles kernels for each new
shape (tens of milliseconds, at a user's expense) gets a small fixed set of (rows, length), all of which the
warm-up runs: traffic never meets a cold shape.
"""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from batchfleet.models.config import Limits

Grid: TypeAlias = tuple[int, int]
"""Padded lengths: how many from each power of two to the next, and the least step in tokens."""

GRIDS: tuple[tuple[Grid, Grid], ...] = (((8, 16), (4, 16)), ((4, 16), (2, 16)), ((2, 16), (2, 16)))
"""For runtimes that compile per shape, finest first: lengths of full batches, and of smaller ones.

All are multiples of 16, the depth of a matrix tile (AMX). Measured with bf16 on OpenVINO: attention over any other
length adds up in another order, and an answer then depends on the lengths of its company (a cosine of 0.99998 where
multiples of 16 give exactly 1).
"""

WARM_TOKENS = 100_000
WARM_SHAPES = 128
"""What the warm-up of a fixed set may run: some 5 s of a core, and 1.2 MB of compiled kernels a shape (OpenVINO)."""

WARM_LENGTHS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
"""Lengths that the warm-up measures on runtimes that take any shape."""


@dataclass(frozen=True, slots=True, order=True)
class PassShape:
    """Padded shape of one pass.

    Attributes:
        rows: Rows, of which the last may be padding.
        length: Tokens of each row, of which the last may be padding.
    """

    rows: int
    length: int

    @property
    def tokens(self) -> int:
        """Padded tokens of the pass."""
        return self.rows * self.length


class ShapePolicy(Protocol):
    """Maps what a batch needs to the shape that it runs in."""

    @property
    def lengths(self) -> tuple[int, ...] | None:
        """The padded lengths that exist, ascending, or None where any length does (for bucketing)."""
        ...

    def most_rows(self, longest: int) -> int:
        """Returns how many items, the longest of `longest` tokens, one pass may hold as it will be padded.

        At least one: an item over the token budget runs alone.
        """
        ...

    def shape(self, count: int, longest: int) -> PassShape:
        """Returns the shape for `count` items whose longest has `longest` tokens.

        Raises:
            ValueError: If the model's limits do not admit such a batch.
        """
        ...

    def warm_shapes(self) -> tuple[PassShape, ...]:
        """Returns the shapes that the warm-up runs: each of traffic's, where the set is fixed."""
        ...


class ExactShapes:
    """Pads to the longest item: for runtimes that take any shape at no cost."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    @property
    def lengths(self) -> None:
        """None: any length exists."""
        return

    def most_rows(self, longest: int) -> int:
        """Returns how many items of up to `longest` tokens one pass may hold."""
        return _most_rows(self._limits, longest)

    def shape(self, count: int, longest: int) -> PassShape:
        """Returns exactly `count` x `longest`.

        Raises:
            ValueError: If the model's limits do not admit such a batch.
        """
        _check(self, self._limits, count, longest)
        return PassShape(count, longest)

    def warm_shapes(self) -> tuple[PassShape, ...]:
        """Returns one row and a full batch at each of `WARM_LENGTHS` up to the longest item."""
        longest = self._limits.max_item_tokens
        lengths = [length for length in WARM_LENGTHS if length < longest] + [longest]
        shapes = {PassShape(rows, n) for n in lengths for rows in (1, self.most_rows(n))}
        return tuple(sorted(shapes, key=lambda shape: (shape.tokens, shape.length)))


class FixedShapes:
    """Pads to one of a fixed set of shapes: for runtimes that compile per shape.

    Full batches come in fine lengths, smaller ones in coarser lengths and powers of two of rows: the finest set of
    `GRIDS` whose warm-up keeps within `WARM_TOKENS` and `WARM_SHAPES`, or the coarsest.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        longest = limits.max_item_tokens
        for fine, coarse in GRIDS:
            self._partial = {n: _row_ladder(_most_rows(limits, n)) for n in _grid(longest, *coarse)}
            self._coarse = tuple(self._partial)
            self._lengths = tuple(sorted({*_grid(longest, *fine), *self._coarse}))
            warm = self.warm_shapes()
            if len(warm) <= WARM_SHAPES and sum(shape.tokens for shape in warm) <= WARM_TOKENS:
                break

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths of full batches up to the longest item, ascending."""
        return self._lengths

    def most_rows(self, longest: int) -> int:
        """Returns how many items of up to `longest` tokens one pass may hold, each padded to its bucket."""
        return _most_rows(self._limits, _round_up(self._lengths, longest))

    def shape(self, count: int, longest: int) -> PassShape:
        """Returns the smallest shape of the set that holds the batch.

        Raises:
            ValueError: If the model's limits do not admit such a batch.
        """
        _check(self, self._limits, count, longest)
        length = _round_up(self._lengths, longest)
        full = PassShape(_most_rows(self._limits, length), length)
        length = _round_up(self._coarse, longest)
        ladder = self._partial[length]
        if count > ladder[-1]:
            return full
        partial = PassShape(ladder[bisect_left(ladder, count)], length)
        return min(partial, full, key=lambda shape: shape.tokens)

    def warm_shapes(self) -> tuple[PassShape, ...]:
        """Returns the whole set, small shapes first."""
        shapes = {PassShape(rows, length) for length, ladder in self._partial.items() for rows in ladder}
        shapes |= {PassShape(_most_rows(self._limits, length), length) for length in self._lengths}
        return tuple(sorted(shapes, key=lambda shape: (shape.tokens, shape.length)))


def _round_up(lengths: tuple[int, ...], longest: int) -> int:
    return lengths[min(bisect_left(lengths, longest), len(lengths) - 1)]


def _most_rows(limits: Limits, length: int) -> int:
    return max(1, min(limits.max_batch_items, limits.max_batch_tokens // length))


def _check(policy: ShapePolicy, limits: Limits, count: int, longest: int) -> None:
    if not 1 <= longest <= limits.max_item_tokens:
        raise ValueError(f"an item of {longest} tokens is outside 1 to {limits.max_item_tokens}")
    if not 1 <= count <= policy.most_rows(longest):
        raise ValueError(f"{count} items of up to {longest} tokens are over the model's limits for one pass")


def _grid(longest: int, steps: int, least: int) -> tuple[int, ...]:
    """Returns rising lengths up to `longest`, `steps` of them from each power of two to the next."""
    lengths, length = [], least
    while length < longest:
        lengths.append(length)
        octave = 1 << (length.bit_length() - 1)
        length += max(least, octave // steps)
    return (*lengths, longest)


def _row_ladder(most: int) -> tuple[int, ...]:
    """Returns 1, 2, 4, ... up to `most`, which is the last step."""
    steps = [1 << power for power in range(most.bit_length()) if 1 << power < most]
    return (*steps, most)
