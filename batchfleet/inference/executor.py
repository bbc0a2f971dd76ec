"""Port: what runs items through a model, step by step.

`admit` hands items in, each `step` runs one pass and returns what finished, `retire` takes items out early.
A one-shot task is the case of one step: every admitted item finishes in the next one. Generation is the case
of many: an item stays until its last token. An executor is used by one thread.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from batchfleet.errors import PassFailedError
from batchfleet.inference.shapes import PassShape, ShapePolicy
from batchfleet.inference.task import ItemFault, Output, PreparedItem

Outcome: TypeAlias = Output | ItemFault


@dataclass(frozen=True, slots=True)
class PassItem:
    """An item on its way through an executor.

    Attributes:
        key: The caller's name for it, unique among the admitted.
        item: What `Task.prepare` made of it.
        parameters: What `Task.parse_parameters` made of its job's parameters.
    """

    key: Hashable
    item: PreparedItem
    parameters: Hashable


@dataclass(frozen=True, slots=True)
class PassStats:
    """What one pass was.

    Attributes:
        count: Items in it.
        shape: Its padded shape; `shape.length` is the padded length.
        real_tokens: Tokens that were not padding.
        seconds: Wall seconds from collating to split results.
    """

    count: int
    shape: PassShape
    real_tokens: int
    seconds: float

    @property
    def padded_length(self) -> int:
        """Tokens of each row, padding included."""
        return self.shape.length

    @property
    def padded_tokens(self) -> int:
        """Tokens of the whole pass, padding included."""
        return self.shape.tokens


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step gave.

    Attributes:
        finished: Output or fault of each item that finished, by its key.
        stats: The pass that the step ran, or None if nothing was admitted.
    """

    finished: Mapping[Hashable, Outcome]
    stats: PassStats | None


@dataclass(frozen=True, slots=True)
class WarmPass:
    """One shape of a warm-up.

    Attributes:
        shape: The shape.
        first_seconds: Wall seconds of its first pass, compilation included.
        seconds: Wall seconds of a pass once warm.
    """

    shape: PassShape
    first_seconds: float
    seconds: float


@dataclass(frozen=True, slots=True)
class WarmUpReport:
    """What the warm-up measured.

    Attributes:
        passes: The shapes that ran: a first guess for cost models.
        seconds: Wall seconds of all.
        too_large: Shapes that did not fit into memory: a first guess for ceilings.
    """

    passes: tuple[WarmPass, ...]
    seconds: float
    too_large: tuple[PassShape, ...] = ()


class OutputMismatchError(PassFailedError):
    """The outputs of a pass are not one a row, or its results not one an item: whose is whose cannot be told."""


class Executor(Protocol):
    """Runs items through one loaded model."""

    @property
    def shapes(self) -> ShapePolicy:
        """Which padded shapes its passes have."""
        ...

    def admit(self, items: Sequence[PassItem]) -> None:
        """Takes items in for the next step.

        Raises:
            ValueError: If the items may not share a pass with each other or with those admitted: limits,
                `Task.pass_key`, or a key used twice. Nothing is admitted then.
        """
        ...

    def step(self) -> StepResult:
        """Runs one pass over the admitted items.

        Raises:
            OutOfMemoryError: If the pass did not fit into the device's memory. What was cached has been given back.
            OutputMismatchError: If its outputs are malformed.
            PassFailedError: If the pass raised.

        In all cases the items that took part are no longer admitted, and the caller decides what to try next
        (`isolate.run_isolated`).
        """
        ...

    def retire(self, keys: Iterable[Hashable]) -> None:
        """Takes items out that are no longer wanted; unknown keys are ignored."""
        ...

    def warm_up(self) -> WarmUpReport:
        """Runs a fixed set of shapes (`ShapePolicy.warm_shapes`) and remembers the first outputs for `probe`.

        Shapes that do not fit into memory are reported, and are no error: an item that needs one will have its own.

        Raises:
            PassFailedError: If a pass fails, or the smallest one does not fit: the model cannot serve on this device.
        """
        ...

    def probe(self) -> None:
        """Runs the warm-up sample again, to tell a sick device from a bad item.

        Raises:
            PassFailedError: If it fails, or gives another answer than at warm-up: the device is sick.
        """
        ...

    def close(self) -> None:
        """Frees the model's memory; a second call does nothing."""
        ...
