"""The executor of tasks that finish in one forward pass."""

import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from batchfleet.clock import Monotonic
from batchfleet.errors import OutOfMemoryError, PassFailedError
from batchfleet.foreign import describe, ends_the_process
from batchfleet.inference.executor import (
    Outcome,
    OutputMismatchError,
    PassItem,
    PassStats,
    StepResult,
    WarmPass,
    WarmUpReport,
)
from batchfleet.inference.runtime import Session
from batchfleet.inference.shapes import ExactShapes, FixedShapes, PassShape, ShapePolicy
from batchfleet.inference.task import Array, ItemFault, Output, Results, Task
from batchfleet.jobs.job import JobErrorCode
from batchfleet.models.config import Limits

PROBE_TOLERANCE = 0.01
"""How far a probe's answer may be from the warm-up's, as a share of the largest value: above the noise of bf16."""

_COMPILING_RULES = 256
"""Padded tokens up to which compiling costs about as much as the pass itself (6 to 15 ms)."""


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
        if len({self._pass_key(item) for item in batch.values()}) > 1:
            raise ValueError("items with different pass keys must not share a pass")
        if batch:
            self._shape_of(list(batch.values()))
        self._admitted = batch

    def step(self) -> StepResult:
        """Runs one pass over all admitted items; all of them finish.

        Raises:
            OutOfMemoryError: If the pass did not fit into memory; what was cached has been given back.
            OutputMismatchError: If its outputs are malformed.
            PassFailedError: If the pass raised.

        Nothing is admitted afterwards.
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
        passes: list[WarmPass] = []
        too_large: list[PassShape] = []
        for shape in self._shapes.warm_shapes():
            if any(shape.rows >= one.rows and shape.length >= one.length for one in too_large):
                continue
            try:
                passes.append(self._warm(shape))
            except OutOfMemoryError:
                too_large.append(shape)
        return WarmUpReport(passes=tuple(passes), seconds=self._clock() - began, too_large=tuple(too_large))

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

    def _pass_key(self, item: PassItem) -> Hashable:
        try:
            return self._task.pass_key(item.parameters)
        except BaseException as error:
            if ends_the_process(error):
                raise
            raise PassFailedError(f"the task has no pass key for an item: {describe(error)}") from error

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
            _check_results(results, batch)
            return _finite_or_faults(results)
        except PassFailedError:
            raise
        except BaseException as error:
            if ends_the_process(error):
                raise
            if self._is_out_of_memory(error):
                self._give_back()
                text = f"a pass of {shape.rows} x {shape.length} does not fit: {describe(error)}"
                raise OutOfMemoryError(text) from error
            raise PassFailedError(f"the forward pass of {len(batch)} item(s) raised: {describe(error)}") from error

    def _is_out_of_memory(self, error: BaseException) -> bool:
        try:
            return isinstance(error, MemoryError) or self._session.is_out_of_memory(error)
        except BaseException as second:  # it may have to read a text that cannot be read
            if ends_the_process(second):
                raise
            return False

    def _give_back(self) -> None:
        """Has the runtime return what it caches to the system, so that the next, smaller pass has it to itself."""
        smallest = self._shapes.warm_shapes()[0]
        # If even that fails the next pass will tell, and the probe after it.
        try:
            items = [entry.item for entry in self._samples(smallest)]
            self._session.run(self._task.collate(items, smallest), shrink=True)
        except BaseException as error:
            if ends_the_process(error):
                raise

    def _warm(self, shape: PassShape) -> WarmPass:
        batch = self._samples(shape)
        first = self._seconds_of(batch, shape)
        # Of a large pass compiling is a small part: a second one would double the time of the whole warm-up.
        rules = self._session.compiles_per_shape and shape.tokens <= _COMPILING_RULES
        again = self._seconds_of(batch, shape) if rules else first
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
            raise OutputMismatchError(f"output {name!r} has shape {output.shape} for {shape.rows} row(s)")


def _check_results(results: Results, batch: Sequence[PassItem]) -> None:
    if len(results) != len(batch):
        raise OutputMismatchError(f"the task split {len(batch)} item(s) into {len(results)} result(s)")


def _finite_or_faults(results: Results) -> list[Outcome]:
    """Returns the results one by one, those that hold NaN or infinity as faults."""
    if isinstance(results, np.ndarray) and np.isfinite(results).all():
        return list(results)  # the rule: one look at the block, and views of its rows
    return [_finite_or_fault(result) for result in results]


def _finite_or_fault(result: Output | ItemFault) -> Outcome:
    if isinstance(result, ItemFault) or np.isfinite(result).all():
        return result
    return ItemFault(JobErrorCode.NON_FINITE_OUTPUT, "the model's output holds NaN or infinity")
