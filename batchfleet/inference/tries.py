"""What isolating one batch came to: the passes that were tried, and each item's outcome."""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from batchfleet.errors import BatchfleetError
from batchfleet.inference.executor import Outcome, PassItem, PassStats

Batch: TypeAlias = tuple[PassItem, ...]


class Tried(Enum):
    """How one pass ended."""

    RAN = "ran"
    RAISED = "raised"
    MISMATCHED = "mismatched"
    """Its outputs could not be matched to its items."""
    TOO_LARGE = "too large"
    """It did not fit into the device's memory."""


@dataclass(frozen=True, slots=True)
class PassTry:
    """One pass over items that was tried.

    Attributes:
        items: Who was in it.
        padded_length: Tokens of each row, padding included.
        tried: How it ended.
        stats: What it was, if it ran.
    """

    items: Batch
    padded_length: int
    tried: Tried
    stats: PassStats | None = None


@dataclass(frozen=True, slots=True)
class IsolatedRun:
    """What became of one batch.

    Attributes:
        outcomes: Output or fault of every item, by key; of those that finished, if the device was found sick.
        tries: All passes over items, in order. An item's outcome is that of the last one that it was in.
        probes: Number of times that the warm-up sample ran.
        non_finite: Number of items that came back with NaN or infinity and were tried again alone.
    """

    outcomes: Mapping[Hashable, Outcome]
    tries: tuple[PassTry, ...]
    probes: int
    non_finite: int

    def by_pass(self) -> Iterator[tuple[int, PassTry, Batch]]:
        """Yields the passes that gave outcomes: number (from 1), pass, and the items whose outcome is of this pass."""
        if len(self.tries) == 1:
            yield 1, self.tries[0], self.tries[0].items
            return
        last = {item.key: number for number, one in enumerate(self.tries, 1) for item in one.items}
        for number, one in enumerate(self.tries, 1):
            items = tuple(item for item in one.items if last[item.key] == number)
            if items:
                yield number, one, items

    @property
    def passes(self) -> tuple[PassStats, ...]:
        """Returns the passes that ran, in order."""
        return tuple(one.stats for one in self.tries if one.stats is not None)

    @property
    def failed_passes(self) -> int:
        """Returns how many passes raised, for another reason than memory."""
        return sum(one.tried in {Tried.RAISED, Tried.MISMATCHED} for one in self.tries)

    @property
    def mismatches(self) -> int:
        """Returns how many passes gave outputs that could not be matched to their items."""
        return sum(one.tried is Tried.MISMATCHED for one in self.tries)

    @property
    def too_large(self) -> tuple[PassTry, ...]:
        """Returns the passes that did not fit into memory."""
        return tuple(one for one in self.tries if one.tried is Tried.TOO_LARGE)


class SickDeviceError(BatchfleetError):
    """A pass failed and so did the warm-up sample: the device is at fault, not the items.

    Attributes:
        run: What had finished before the device was found sick. All other items are to be handed back free of charge.
    """

    code = "sick_device"

    def __init__(self, message: str, run: IsolatedRun) -> None:
        super().__init__(message)
        self.run = run
