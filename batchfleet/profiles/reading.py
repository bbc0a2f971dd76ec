"""From what is stored to values: what cannot be a measurement is left out, and said once.

A row may be wrong for reasons that no code of ours explains: a hand, a bad disk, another version. It is only a figure
that can be measured again, so it must never stop who reads it.
"""

import logging
import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from batchfleet.batching.ceilings import Ceiling, Ceilings
from batchfleet.batching.cost import ShapeCost
from batchfleet.batching.plausible import is_ceiling, is_pass, is_weight
from batchfleet.logs import Action
from batchfleet.profiles.port import ProfileKey, Rate

logger = logging.getLogger(__name__)

T = TypeVar("T")


def plausible_costs(costs: Iterable[ShapeCost]) -> tuple[ShapeCost, ...]:
    """Returns the figures that passes can have."""
    return tuple(one for one in costs if is_pass(one.count, one.length, one.seconds) and is_weight(one.weight))


def plausible_ceilings(ceilings: Ceilings) -> Ceilings:
    """Returns the ceilings that can have been learned."""
    return Ceilings(tuple(one for one in ceilings.known if is_ceiling(one.rows, one.length, one.at)))


def plausible_rate(rate: Rate) -> Rate:
    """Returns a rate, or the one that says nothing."""
    sums = (rate.items, rate.input_bytes, rate.seconds)
    return rate if all(0 <= one < math.inf for one in sums) else Rate()


class RowReader:
    """Makes values out of rows, and remembers of which keys it has told that some were left out."""

    def __init__(self) -> None:
        self._told: set[ProfileKey] = set()

    def costs(self, key: ProfileKey, rows: Iterable[Iterable[Any]]) -> tuple[ShapeCost, ...]:
        """Returns what passes cost, from rows of count, length, seconds, weight."""
        return tuple(self._kept(key, rows, ShapeCost, lambda one: bool(plausible_costs((one,)))))

    def ceilings(self, key: ProfileKey, rows: Iterable[Iterable[Any]]) -> Ceilings:
        """Returns what memory holds, from rows of length, rows, moment."""
        kept = self._kept(key, rows, Ceiling, lambda one: is_ceiling(one.rows, one.length, one.at))
        return Ceilings(tuple(sorted(kept)))

    def rate(self, key: ProfileKey, row: Iterable[Any]) -> Rate:
        """Returns what work costs, from a row of items, bytes, seconds."""
        return next(iter(self._kept(key, (row,), Rate, lambda one: plausible_rate(one) is one)), Rate())

    @staticmethod
    def age_s(moment: Any, now: float) -> float:
        """Returns how long ago a moment was; one that is none counts as now."""
        return max(0.0, now - moment) if isinstance(moment, int | float) else 0.0

    def _kept(
        self, key: ProfileKey, rows: Iterable[Iterable[Any]], make: Callable[..., T], may_be: Callable[[T], bool]
    ) -> list[T]:
        kept, odd = [], 0
        for row in rows:
            # SQLite keeps texts in columns of numbers, and infinity under any name.
            value = make(*row) if all(isinstance(field, int | float) for field in row) else None
            if value is not None and may_be(value):
                kept.append(value)
            else:
                odd += 1
        if odd and key not in self._told:
            self._told.add(key)
            extra = {"action": Action.PROFILE_ODD, "model": key.model, "device": key.device, "rows": odd}
            logger.warning("what the fleet has learned holds figures that cannot be; they are left out", extra=extra)
        return kept
