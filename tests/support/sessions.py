"""A session and a task over plain numbers, to count passes and to fail on demand."""

from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np

from batchfleet.inference.executor import PassItem
from batchfleet.inference.one_shot import OneShotExecutor
from batchfleet.inference.shapes import PassShape
from batchfleet.inference.task import Array, ItemFault, Output, PreparedItem
from batchfleet.jobs.job import JobErrorCode
from batchfleet.models.config import Limits

LIMITS = Limits(max_batch_items=256, max_batch_tokens=100_000, max_item_tokens=100)
SAMPLE = 1_000_000.0
"""The value of the warm-up sample, so that a stub can tell probes from items."""


class NumberTask:
    """An item is a number; its result is that number doubled by the session."""

    name = "number"

    def parse_parameters(self, raw: Mapping[str, object]) -> Hashable:
        return tuple(sorted(raw))

    def check_inputs(self, inputs: Sequence[object]) -> None:
        return

    def prepare(self, inputs: Sequence[object], parameters: Sequence[Hashable]) -> list[PreparedItem | ItemFault]:
        return [PreparedItem(1, value) for value in inputs]

    def pass_key(self, parameters: Hashable) -> Hashable:
        return parameters

    def collate(self, items: Sequence[PreparedItem], shape: PassShape) -> dict[str, Array]:
        values = np.zeros((shape.rows, 1), np.float32)
        values[: len(items), 0] = [item.payload for item in items]
        return {"values": values}

    def split(
        self, outputs: Mapping[str, Array], items: Sequence[PreparedItem], parameters: Sequence[Hashable]
    ) -> list[Output | ItemFault]:
        return list(outputs["doubled"][: len(items)])

    def agreement(self, alone: Output, in_company: Output) -> float:
        return float(1 - np.abs(alone - in_company).max())

    @property
    def least_agreement(self) -> float:
        return 0.999

    def sample(self, length: int) -> PreparedItem:
        return PreparedItem(length, SAMPLE)

    def sample_inputs(self) -> Sequence[object]:
        return ()

    def default_parameters(self) -> Hashable:
        return None


class StubSession:
    """Doubles numbers; keeps the values of every run; `behave` may raise or replace the output."""

    provider = "cpu"
    precision = "fp32"

    def __init__(
        self, behave: Callable[[list[float]], Array | None] | None = None, *, compiles_per_shape: bool = False
    ) -> None:
        self.behave = behave
        self.compiles_per_shape = compiles_per_shape
        self.runs: list[list[float]] = []
        self.shapes: list[tuple[int, ...]] = []
        self.closed = 0
        self.shrinks = 0
        """Runs that were asked to give memory back: they run the sample, and count as probes here."""

    def run(self, feeds: Mapping[str, Array], *, shrink: bool = False) -> dict[str, Array]:
        values = feeds["values"]
        self.shrinks += shrink
        self.runs.append(values[:, 0].tolist())
        self.shapes.append(values.shape)
        output = self.behave(self.runs[-1]) if self.behave else None
        return {"doubled": values * 2 if output is None else output}

    def is_out_of_memory(self, error: BaseException) -> bool:
        return "no memory" in str(error)

    def close(self) -> None:
        self.closed += 1

    @property
    def item_runs(self) -> list[list[float]]:
        """The runs that were no probe."""
        return [values for values in self.runs if SAMPLE not in values]

    @property
    def probes(self) -> int:
        return len(self.runs) - len(self.item_runs)


def number_items(values: Sequence[float], parameters: Hashable = None, length: int = 1) -> list[PassItem]:
    """Returns an item for each value, keyed `item-<value>`."""
    return [PassItem(f"item-{value:g}", PreparedItem(length, value), parameters) for value in values]


def executor_over(session: StubSession, limits: Limits = LIMITS) -> OneShotExecutor:
    return OneShotExecutor(NumberTask(), session, limits)


class LengthTask(NumberTask):
    """An item is as long as its number says, and padded to the pass; over `most` it is refused."""

    def __init__(self, most: int = 1_000_000) -> None:
        self._most = most

    def prepare(self, inputs: Sequence[object], parameters: Sequence[Hashable]) -> list[PreparedItem | ItemFault]:
        lengths = [int(float(str(value))) for value in inputs]
        return [
            PreparedItem(length, value)
            if length <= self._most
            else ItemFault(JobErrorCode.INPUT_TOO_LONG, f"has {length} tokens")
            for value, length in zip(inputs, lengths, strict=True)
        ]

    def collate(self, items: Sequence[PreparedItem], shape: PassShape) -> dict[str, Array]:
        values = np.zeros((shape.rows, shape.length), np.float32)
        values[: len(items), 0] = [item.payload for item in items]
        return {"values": values}

    def split(
        self, outputs: Mapping[str, Array], items: Sequence[PreparedItem], parameters: Sequence[Hashable]
    ) -> list[Output | ItemFault]:
        return list(outputs["doubled"][: len(items), :1])
