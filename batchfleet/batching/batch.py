"""What the window decides: a batch to run now, or how long to wait."""

from dataclasses import dataclass
from enum import StrEnum

from batchfleet.batching.item import Item
from batchfleet.jobs.job import JobId


class ReleaseReason(StrEnum):
    """Why a batch was formed when it was."""

    FULL = "full"
    """No further item fits its budgets, or would pay."""
    DELAY = "delay"
    """Its most urgent item used up the delay that batching may cost it."""
    SLACK = "slack"
    """Its most urgent item's deadline leaves no more room."""
    DRAINED = "drained"
    """The device is free and waiting for more would not pay."""
    ALONE = "alone"
    """A suspect, which runs without company."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Budgets of one pass of one model.

    Attributes:
        max_items: Rows at most.
        max_tokens: Padded tokens at most: rows times padded length. One item over it runs alone.
        max_delay_s: How long after its submission an item may be held back for company.
        max_pass_s: Expected seconds of a pass at most (one item over it runs alone).
        preferred_items: Rows beyond which a batch neither grows nor waits; None leaves that to the cost model.
    """

    max_items: int = 64
    max_tokens: int = 1024
    max_delay_s: float = 0.005
    max_pass_s: float = 1.0
    preferred_items: int | None = None

    def __post_init__(self) -> None:
        if self.max_items < 1 or self.max_tokens < 1 or self.max_delay_s < 0 or self.max_pass_s <= 0:
            raise ValueError("batch limits must be positive")
        if self.preferred_items is not None and self.preferred_items < 1:
            raise ValueError("a preferred size must be positive")


@dataclass(frozen=True, slots=True)
class Batch:
    """The items of one forward pass, shortest first.

    Attributes:
        padded_length: The length that every row is padded to.
    """

    items: tuple[Item, ...]
    padded_length: int
    reason: ReleaseReason

    @property
    def jobs(self) -> tuple[JobId, ...]:
        """Returns the ids of the jobs that have items in it, each once."""
        return tuple(dict.fromkeys(item.job for item in self.items))

    @property
    def real_tokens(self) -> int:
        """Returns the tokens that are not padding."""
        return sum(item.length for item in self.items)

    @property
    def padded_tokens(self) -> int:
        """Returns rows times padded length."""
        return len(self.items) * self.padded_length


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to run yet; ask again at `until` (monotonic seconds), or when items arrive. None: only then."""

    until: float | None = None
