"""The executor of tasks that finish in one forward pass."""

import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from batchfleet.clock import Monotonic
from batchfleet.errors import PassFailedError
from batchfleet.inference.executor import (
    Outcome,
    PassItem,
    PassStats,
    StepResult,
    WarmPass,
    WarmUpReport,
)
from batchfleet.inference.runtime import Session
from batchfleet.inference.shapes import ExactShapes, FixedShapes, PassShape, ShapePolicy
from batchfleet.inference.task import Array, ItemFault, Output, Task
from batchfleet.jobs.job import JobErrorCode
from batchfleet.models.config import Limits

PROBE_TOLERANCE = 0.01
"""How far a probe's answer may be from the warm-up's, as a share of the largest value: above the noise of bf16."""


class OneShotExecutor:
    """Runs every admitted item in the next step. Not thread-safe: one thread owns it."""

    def __init__(
        self, task: Task[Any], session: Session, limits: Limits, *, clock: Monotonic = time.perf_counter
    ) -> None:
        self._task = task
        self._session = session
        self._clock = clock
        self._shapes: ShapePolicy = FixedShapes(limits) if session.compiles_per_shape else ExactShapes(limits)
        self._admitted: dict[Hashable, PassItem] = {}
        self._reference: Outcome | None = None

    @property
    def shapes(self) -> ShapePolicy:
        """Exact on runtimes that take any shape, a fixed set on those that compile per shape."""
        return self._shapes

    def admit(self, items: Sequence[PassItem]) -> None:
        """Takes items in for the next step.

        Raises:
            ValueError: If the batch would be over the limits, mixes pass keys or repeats a key.
        """
        batch = {**self._admitted, **{item.key: item for item in items}}
        if len(batch) != len(self._admitted) + len(items):
            raise ValueError("an item with this key is admitted already")
        if len({self._task.pass_key(item.parameters) for item in batch.values()}) > 1:
            raise ValueError("items with different pass keys must not share a pass")
        if batch:
            self._shape_of(list(batch.values()))
        self._admitted = batch

    def step(self) -> StepResult:
        """Runs one pass over all admitted items; all of them finish.

        Raises:
            PassFailedError: If the pass raised or its outputs are malformed; nothing is admitted afterwards.
        """
        batch = list(self._admitted.values())
        self._admitted = {}
        if not batch:
            return StepResult(finished={}, stats=None)
        return self._pass(batch, self._shape_of(batch))

    def retire(self, keys: Iterable[Hashable]) -> None:
        """Takes items out that are no longer wanted; unknown keys are ignored."""
        for key in keys:
            self._admitted.pop(key, None)

    def warm_up(self) -> WarmUpReport:
        """Runs `shapes.warm_shapes()` with the task's sample; twice where the first pass compiles.

        Raises:
            PassFailedError: If a pass fails or its output is not finite.
        """
        began = self._clock()
        self._reference = self._sample_outcome()
        passes = tuple(self._warm(shape) for shape in self._shapes.warm_shapes())
        return WarmUpReport(passes=passes, seconds=self._clock() - began)

    def probe(self) -> None:
        """Runs the smallest warm-up sample again and compares.

        Raises:
            PassFailedError: If it fails or, after a warm-up, gives another answer: the device is sick.
        """
        output = self._sample_outcome()
        reference = self._reference
        if reference is None or isinstance(reference, ItemFault):
            return
        allowed = PROBE_TOLERANCE * float(np.abs(reference).max())
        if output.shape != reference.shape or not np.allclose(output, reference, rtol=0, atol=allowed):
            raise PassFailedError("the warm-up sample gives another answer than at warm-up")

    def close(self) -> None:
        """Frees the model's memory; a second call does nothing."""
        self._admitted = {}
        self._session.close()

    def _shape_of(self, batch: Sequence[PassItem]) -> PassShape:
        return self._shapes.shape(len(batch), max(item.item.length for item in batch))

    def _pass(self, batch: Sequence[PassItem], shape: PassShape) -> StepResult:
        began = self._clock()
        outcomes = self._forward(batch, shape)
        stats = PassStats(
            count=len(batch),
            shape=shape,
            real_tokens=sum(item.item.length for item in batch),
            seconds=self._clock() - began,
        )
        return StepResult({item.key: outcome for item, outcome in zip(batch, outcomes, strict=True)}, stats)

    def _forward(self, batch: Sequence[PassItem], shape: PassShape) -> list[Outcome]:
        items = [entry.item for entry in batch]
        try:
            outputs = self._session.run(self._task.collate(items, shape))
            _check_rows(outputs, shape)
            results = self._task.split(outputs, items, [entry.parameters for entry in batch])
        except PassFailedError:
            raise
        except Exception as error:
            raise PassFailedError(f"the forward pass of {len(batch)} item(s) raised: {error}") from error
        if len(results) != len(batch):
            raise PassFailedError(f"the task split {len(batch)} item(s) into {len(results)} result(s)")
        return [_finite_or_fault(result) for result in results]

    def _warm(self, shape: PassShape) -> WarmPass:
        batch = self._samples(shape)
        first = self._seconds_of(batch, shape)
        again = self._seconds_of(batch, shape) if self._session.compiles_per_shape else first
        return WarmPass(shape=shape, first_seconds=first, seconds=again)

    def _seconds_of(self, batch: Sequence[PassItem], shape: PassShape) -> float:
        result = self._pass(batch, shape)
        assert result.stats is not None  # noqa: S101 - a pass over items always has them
        return result.stats.seconds

    def _samples(self, shape: PassShape) -> list[PassItem]:
        item, parameters = self._task.sample(shape.length), self._task.default_parameters()
        return [PassItem(key=row, item=item, parameters=parameters) for row in range(shape.rows)]

    def _sample_outcome(self) -> Output:
        """Returns the output of the first warm-up shape's sample."""
        shape = self._shapes.warm_shapes()[0]
        outcome = self._forward(self._samples(shape), shape)[0]
        if isinstance(outcome, ItemFault):
            raise PassFailedError(f"the warm-up sample fails: {outcome.message}")
        return outcome


def _check_rows(outputs: Mapping[str, Array], shape: PassShape) -> None:
    """Refuses outputs whose rows cannot be those of the pass: results must never slide to a neighbour."""
    for name, output in outputs.items():
        if output.ndim == 0 or output.shape[0] != shape.rows:
            raise PassFailedError(f"output {name!r} has shape {output.shape} for {shape.rows} row(s)")


def _finite_or_fault(result: Output | ItemFault) -> Outcome:
    if isinstance(result, ItemFault) or np.isfinite(result).all():
        return result
    return ItemFault(JobErrorCode.NON_FINITE_OUTPUT, "the model's output holds NaN or infinity")
