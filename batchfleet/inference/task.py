"""Port: what a model does with its items, from checked input to result.

A task is bound to one model's files (its tokenizer, its options). The worker calls it in this order:
`prepare` in threads beside the pass, `pass_key` when a batch is assembled, then, inside an executor,
`collate` before and `split` after the forward pass.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from batchfleet.inference.intake import Intake
from batchfleet.inference.shapes import PassShape
from batchfleet.jobs.job import JobErrorCode

Array: TypeAlias = NDArray[Any]
Output: TypeAlias = NDArray[np.float32]
"""What one item becomes. Tasks whose results are not vectors widen this when they arrive."""

Results: TypeAlias = "list[Output | ItemFault] | Output"
"""One result an item: a list, or (cheaper to make and to check) one array whose rows are the results."""

P = TypeVar("P", bound=Hashable)


@dataclass(frozen=True, slots=True)
class PreparedItem:
    """One item, ready to be batched.

    Attributes:
        length: Its tokens (or what else a pass is padded by), at least 1.
        payload: What the task collates; no one else looks inside.
    """

    length: int
    payload: Any


@dataclass(frozen=True, slots=True)
class ItemFault:
    """An item's own error: it fails alone, its neighbours succeed.

    Attributes:
        code: The code that its job ends with, if the item's error becomes the job's.
        message: One sentence for people.
    """

    code: JobErrorCode
    message: str


class Task(Intake[P], Protocol[P]):
    """What a model does. `P` is the type of its parameters."""

    def prepare(self, inputs: Sequence[object], parameters: Sequence[P]) -> list[PreparedItem | ItemFault]:
        """Turns inputs of many jobs into items, in order; thread-safe.

        Args:
            inputs: What clients sent, already through `check_inputs`.
            parameters: Each input's parameters, as many as inputs.

        Returns:
            One entry an input. An input that cannot be prepared becomes a fault and hurts no other.
        """
        ...

    def pass_key(self, parameters: P) -> Hashable:
        """Returns what must be equal for two items to share a pass."""
        ...

    def collate(self, items: Sequence[PreparedItem], shape: PassShape) -> dict[str, Array]:
        """Returns the graph's inputs for one pass.

        Args:
            items: At most `shape.rows` items, none longer than `shape.length`.
            shape: Rows and length to pad to; rows without an item must not disturb the others.
        """
        ...

    def split(self, outputs: Mapping[str, Array], items: Sequence[PreparedItem], parameters: Sequence[P]) -> Results:
        """Turns the graph's outputs into one result an item, in the order of `items`.

        Args:
            outputs: The graph's outputs; their first axis is the row, padding rows last.
            items: The items of the pass.
            parameters: Each item's parameters.
        """
        ...

    def agreement(self, alone: Output, in_company: Output) -> float:
        """Returns how well two answers to one item agree, by the task's own measure: 1 is alike.

        Args:
            alone: The answer of a pass of its own.
            in_company: The answer of a pass with others.
        """
        ...

    @property
    def least_agreement(self) -> float:
        """The `agreement` from which on company counts as not having mattered."""
        ...

    def sample(self, length: int) -> PreparedItem:
        """Returns a fixed, plausible item of exactly `length` tokens, for warm-ups and probes."""
        ...

    def sample_inputs(self) -> Sequence[object]:
        """Returns realistic inputs of many lengths, on which the accuracy of variants is compared."""
        ...

    def default_parameters(self) -> P:
        """Returns the parameters of a request that states none."""
        ...
