"""The port to what the fleet has learned. Synchronous, safe to call from any thread; each method is one transaction.

Implementation: `batchfleet.profiles.sql`, on SQLite and Postgres, and `batchfleet.profiles.memory`. Every method raises
`StoreUnavailableError` when the database cannot be reached. Whatever is stored here can be measured again: a worker
without it starts uninformed, and nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from batchfleet.batching.ceilings import Ceilings
from batchfleet.batching.cost import ShapeCost

MOST_WEIGHT: Final = 64.0
"""A shape's figure counts as so many passes at most, so that new ones move it however old it is."""

RATE_MEMORY_S: Final = 300.0
"""Device-seconds of work after which what a rate rests on has faded to a third."""

UNUSED_S: Final = 30 * 86_400.0
"""A profile that no worker has told of for so long is removed."""


@dataclass(frozen=True, slots=True, order=True)
class ProfileKey:
    """What a profile is of: figures of one are not those of another.

    Attributes:
        model: Name of the model.
        version: Its version.
        variant: The variant, and so the precision, that was loaded.
        device: What it runs on, as `workers.device` names it.
    """

    model: str
    version: str
    variant: str
    device: str


@dataclass(frozen=True, slots=True)
class Rate:
    """What work has cost: sums over passes, the older ones faded. Their ratios count.

    Attributes:
        items: Items that were run.
        input_bytes: Bytes of the inputs that they came in.
        seconds: Device-seconds that they took.
    """

    items: float = 0.0
    input_bytes: float = 0.0
    seconds: float = 0.0

    def plus(self, more: "Rate") -> "Rate":
        """Returns the sums after more work, which makes the older fade."""
        keep = RATE_MEMORY_S / (RATE_MEMORY_S + more.seconds)
        return Rate(
            self.items * keep + more.items,
            self.input_bytes * keep + more.input_bytes,
            self.seconds * keep + more.seconds,
        )


@dataclass(frozen=True, slots=True)
class Profile:
    """All that is known of one key.

    Attributes:
        costs: By length, then rows.
        ceilings: As they were learned; `Ceilings.regrown` says what binds now.
        rate: What its work has cost lately.
        told_s: Seconds since a worker last told of it; None if none ever has.
        now: When it was read, by the database's clock: the one of `ceilings`.
    """

    costs: tuple[ShapeCost, ...]
    ceilings: Ceilings
    rate: Rate
    told_s: float | None
    now: float


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one worker learned of one key since it last told.

    Attributes:
        costs: Shapes that it ran, each once: what they cost, and how many of its passes say so.
        ceilings: What it knows of the device's memory; empty where that is nothing new.
        work: What it ran.
    """

    costs: Sequence[ShapeCost] = ()
    ceilings: Ceilings = field(default_factory=Ceilings)
    work: Rate = field(default_factory=Rate)


@dataclass(frozen=True, slots=True)
class KnownRate:
    """The rate of one key, and the seconds since a worker last told of it."""

    key: ProfileKey
    rate: Rate
    told_s: float


class ProfileStore(Protocol):
    """What the fleet has learned."""

    def load(self, key: ProfileKey) -> Profile:
        """Returns what is known of a key; an empty profile if that is nothing."""
        ...

    def tell(self, key: ProfileKey, lesson: Lesson) -> None:
        """Adds what a worker learned. Several may tell of one key at once, and nothing is lost.

        A shape's seconds become the mean by weight, ceilings are merged (`Ceilings.merged`: the lower one stands), work
        is added (`Rate.plus`). An empty lesson says that the key is in use.
        """
        ...

    def find(self, model: str, version: str | None = None) -> list[tuple[ProfileKey, Profile]]:
        """Returns the profiles of a model (of one version, if given), by key."""
        ...

    def rates(self) -> list[KnownRate]:
        """Returns the rates of all keys, by key."""
        ...

    def purge(self, unused_s: float = UNUSED_S) -> int:
        """Removes the profiles that no worker has told of for so long; returns how many."""
        ...

    def close(self) -> None:
        """Gives up connections."""
        ...
