"""Runs items through an executor for the sake of measuring: accuracy, company, speed."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchfleet.errors import PassFailedError
from batchfleet.inference.executor import Executor, PassItem
from batchfleet.inference.shapes import ShapePolicy
from batchfleet.inference.task import ItemFault, Output, PreparedItem

Batches: TypeAlias = tuple[tuple[PassItem, ...], ...]

MOST_WAITED = 0.9
"""Share of a measured time that may be taken out as waiting: a figure of the rest would mean nothing."""

_TINY = 1e-12
_MEDIAN_TOKENS, _SPREAD = 30, 0.75


@dataclass(frozen=True, slots=True)
class Agreement:
    """How well two runs of the same items agree.

    Attributes:
        mean: Mean cosine.
        minimum: Cosine of the item that agrees least.
    """

    mean: float
    minimum: float


def sample_lengths(count: int, longest: int) -> list[int]:
    """Returns the lengths of `count` typical texts, at even steps of the distribution, cut at `longest` tokens.

    Lognormal: mean about 40 tokens, one in twenty over 100.
    """
    normal = NormalDist(float(np.log(_MEDIAN_TOKENS)), _SPREAD)
    lengths = (float(np.exp(normal.inv_cdf((index + 0.5) / count))) for index in range(count))
    return [max(1, min(longest, round(length))) for length in lengths]


def thread_waits() -> dict[str, float]:
    """Returns the seconds that each of our threads was ready to run and had no core, as Linux counts; {} elsewhere."""
    waits = {}
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # a thread that has just ended
            waits[path.parent.name] = int(path.read_text(encoding="ascii").split()[1]) / 1e9
    return waits


def longest_wait(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """Returns the seconds that the unluckiest thread waited in between: the others of a pass waited for it."""
    return max((wait - before.get(thread, 0.0) for thread, wait in after.items()), default=0.0)


def one_by_one(items: Sequence[PassItem]) -> Batches:
    """Returns each item as a batch of its own."""
    return tuple((item,) for item in items)


def as_they_come(items: Iterable[PassItem], shapes: ShapePolicy) -> Batches:
    """Cuts items into batches within the limits, in the order given."""
    batches: list[tuple[PassItem, ...]] = []
    batch: list[PassItem] = []
    for item in items:
        longest = max(entry.item.length for entry in (*batch, item))
        if batch and len(batch) >= shapes.most_rows(longest):
            batches.append(tuple(batch))
            batch = []
        batch.append(item)
    return (*batches, tuple(batch)) if batch else tuple(batches)


def by_length(items: Iterable[PassItem], shapes: ShapePolicy) -> Batches:
    """Cuts items into batches within the limits, longest first, so that little is padded."""
    return as_they_come(sorted(items, key=lambda item: -item.item.length), shapes)


def pass_items(prepared: Iterable[PreparedItem | ItemFault], parameters: object) -> list[PassItem]:
    """Returns the prepared items under their index; those that could not be prepared are left out."""
    return [
        PassItem(key=index, item=item, parameters=parameters)
        for index, item in enumerate(prepared)
        if isinstance(item, PreparedItem)
    ]


def run_batches(executor: Executor, batches: Batches) -> tuple[list[Output], float]:
    """Runs batches and returns all outputs in the order of their integer keys, and the seconds of the passes.

    Raises:
        PassFailedError: If a pass or an item fails.
    """
    outputs: dict[object, Output] = {}
    seconds = 0.0
    for batch in batches:
        executor.admit(batch)
        result = executor.step()
        seconds += result.stats.seconds if result.stats else 0.0
        for key, outcome in result.finished.items():
            if isinstance(outcome, ItemFault):
                raise PassFailedError(f"item {key}: {outcome.message}")
            outputs[key] = outcome
    return [outputs[item.key] for item in sorted(sum(batches, ()), key=_index)], seconds


def agreement(left: Sequence[Output], right: Sequence[Output]) -> Agreement:
    """Returns the cosines between two lists of outputs, pair by pair."""
    a, b = _rows(left), _rows(right)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cosines = np.einsum("ij,ij->i", a, b) / np.maximum(norms, _TINY)
    return Agreement(mean=float(cosines.mean()), minimum=float(cosines.min()))


def _rows(outputs: Sequence[Output]) -> NDArray[np.float64]:
    return np.stack([output.ravel() for output in outputs]).astype(np.float64)


def _index(item: PassItem) -> int:
    if not isinstance(item.key, int):
        raise TypeError("measured items are keyed by their index")
    return item.key
