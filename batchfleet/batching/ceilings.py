"""How many rows the device's memory has been seen to hold, by padded length.

A pass that ran out of memory lowers the ceiling of its length; passes of that length or longer then start smaller.
What was learned while a neighbour held the memory must not bind for ever: a ceiling doubles after each quiet day.
"""

from collections.abc import Iterable
from dataclasses import dataclass

QUIET_S = 86_400.0
"""After so long without running out of memory a ceiling is tried at twice its rows."""

_FORGOTTEN_ROWS = 1 << 14
"""A ceiling that has grown beyond what any pass holds is dropped."""


@dataclass(frozen=True, slots=True, order=True)
class Ceiling:
    """One thing learned: a pass of more than `rows` rows of `length` or longer is not to be tried.

    Attributes:
        length: Padded length from which it binds.
        rows: Rows that may be tried.
        at: When it was learned or last grew, in seconds of a clock that the fleet shares (the database's).
    """

    length: int
    rows: int
    at: float


@dataclass(frozen=True, slots=True)
class Ceilings:
    """All that was learned about one model, precision and device. The empty value bounds nothing.

    Attributes:
        known: By rising length. None says less than another does: shorter or equal length, no more rows, no older.
    """

    known: tuple[Ceiling, ...] = ()

    def most_rows(self, length: int) -> int | None:
        """Returns how many rows padded to `length` may be tried (at least 1), or None where no bound is known.

        A longer length never holds more rows than a shorter one.
        """
        return min((max(1, ceiling.rows) for ceiling in self.known if ceiling.length <= length), default=None)

    def lowered(self, length: int, rows: int, at: float) -> "Ceilings":
        """Returns the ceilings after a pass of `rows` rows padded to `length` ran out of memory at `at`.

        Half of its rows are tried next; one row stays allowed, since only the pass itself can tell that a single
        item does not fit.
        """
        return Ceilings(_essential((*self.known, Ceiling(_coarse(length), max(1, rows // 2), at))))

    def merged(self, other: "Ceilings") -> "Ceilings":
        """Returns what both know together; commutative, associative and idempotent, as a fleet needs it."""
        return Ceilings(_essential((*self.known, *other.known)))

    def regrown(self, now: float) -> "Ceilings":
        """Returns the ceilings as of `now`: each has doubled for every full quiet day since it was learned."""
        grown = (_grown(ceiling, now) for ceiling in self.known)
        return Ceilings(_essential(ceiling for ceiling in grown if ceiling.rows < _FORGOTTEN_ROWS))


def _grown(ceiling: Ceiling, now: float) -> Ceiling:
    # Beyond 14 doublings nothing is left to tell apart, and 2 ** days of a long absence would be a huge number.
    # What has no moment (NaN is larger than nothing) does not grow.
    days = int(min(14.0, max(0.0, (now - ceiling.at) / QUIET_S)))
    return Ceiling(ceiling.length, ceiling.rows << days, ceiling.at + days * QUIET_S)


def _coarse(length: int) -> int:
    """Rounds down to three leading bits: few ceilings, each binding a little earlier than it was learned."""
    spare = max(0, length.bit_length() - 3) if length >= 16 else 0
    return length >> spare << spare


def _essential(ceilings: Iterable[Ceiling]) -> tuple[Ceiling, ...]:
    """Returns those that no other makes superfluous: one that binds earlier, lower, and for no shorter time."""
    kept: list[Ceiling] = []
    for one in sorted(set(ceilings), key=lambda c: (c.length, c.rows, -c.at)):
        if not any(other.rows <= one.rows and other.at >= one.at for other in kept):
            kept.append(one)
    return tuple(kept)


UNBOUNDED = Ceilings()
