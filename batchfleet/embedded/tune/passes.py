"""One process of a measurement: a loaded model, and passes over items of realistic lengths."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from batchfleet.errors import BatchfleetError
from batchfleet.inference.executor import PassItem
from batchfleet.inference.measure import (
    MOST_WAITED,
    Batches,
    longest_wait,
    pass_items,
    run_batches,
    sample_lengths,
    thread_waits,
)
from batchfleet.inference.registry import LoadedModel, load_executor
from batchfleet.inference.shapes import ShapePolicy
from batchfleet.models.repository import ModelRef, ModelRepository

_ITEMS = 128


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model as it could run; travels to the processes by pickle."""

    root: Path
    ref: ModelRef
    variant: str
    threads: int


@dataclass(frozen=True, slots=True)
class Speed:
    """What a process got done.

    Attributes:
        texts_per_s: Items a second of the time in which it was not kept waiting for a core.
        waited: Share of the time that it was: other work ran there.
    """

    texts_per_s: float
    waited: float


@dataclass(frozen=True, slots=True)
class Order:
    """Run for so long, with so many padded tokens a pass at most."""

    budget: int
    seconds: float


def serve(connection: Connection, candidate: Candidate) -> None:
    """Loads the candidate, says so (or what is wrong), then carries out orders until the other end is closed."""
    try:
        files = ModelRepository(candidate.root).open(candidate.ref)
        model = load_executor(files, candidate.variant, threads=candidate.threads)
    except BatchfleetError as error:
        connection.send(str(error))
        return
    connection.send("")
    rounds: dict[int, Batches] = {}
    while True:
        try:
            order: Order = connection.recv()
        except EOFError:
            return
        if order.budget not in rounds:
            rounds[order.budget] = cut(_items(model), model.executor.shapes, order.budget)
            run_batches(model.executor, rounds[order.budget])  # compiles, allocates
            connection.send(Speed(0.0, 0.0))
            continue
        connection.send(_speed(model, rounds[order.budget], order.seconds))


def cut(items: Sequence[PassItem], shapes: ShapePolicy, budget: int) -> Batches:
    """Cuts items into batches within limits and budget, longest first, so that little is padded."""
    batches: list[tuple[PassItem, ...]] = []
    left = sorted(items, key=lambda item: -item.item.length)
    while left:
        longest = left[0].item.length
        rows = min(shapes.most_rows(longest), max(1, budget // longest))
        # The padded length may be a bucket's: the pass is made smaller until it keeps within the budget.
        while rows > 1 and shapes.shape(rows, longest).tokens > budget:
            rows -= 1
        batches.append(tuple(left[:rows]))
        left = left[rows:]
    return tuple(batches)


def _items(model: LoadedModel) -> list[PassItem]:
    prepared = [model.task.sample(length) for length in sample_lengths(_ITEMS, model.limits.max_item_tokens)]
    return pass_items(prepared, model.task.default_parameters())


def _speed(model: LoadedModel, batches: Batches, seconds: float) -> Speed:
    """Runs whole rounds for about so long."""
    began, waits = time.perf_counter(), thread_waits()
    rounds = 0
    while (spent := time.perf_counter() - began) < seconds:
        run_batches(model.executor, batches)
        rounds += 1
    share = min(MOST_WAITED, longest_wait(waits, thread_waits()) / spent)
    return Speed(rounds * sum(map(len, batches)) / (spent * (1 - share)), share)
