"""How a loop could go about it: which processes, which batches. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

BUDGETS = (256, 512, 1024, 2048)
"""Padded tokens of one batch; measured on CPUs, more gains nothing."""
_EXACT_BUDGET = 1024
"""Of exact shapes where each is compiled: hundreds of them with smaller budgets, minutes that gain nothing."""
_SHARES = 4
_SORTS_WELL = 500
_STEP = 8
"""Lengths of filled batches are multiples of it: 32 lengths up to 256 tokens, and 4 tokens of padding a text."""


@dataclass(frozen=True, slots=True, order=True)
class Plan:
    """One way to run a loop.

    Attributes:
        processes: Worker processes.
        threads: Threads of each one's passes.
        budget: Padded tokens of a batch of texts sorted by length; None runs them one by one, in exact length.
        filled: Whether batches have few shapes, for runtimes that compile each: lengths in steps of eight, rows a
            power of two, all of them filled with texts. Else each batch has the shape of its texts.
    """

    processes: int
    threads: int
    budget: int | None
    filled: bool = False

    def __str__(self) -> str:
        how = "one by one" if self.budget is None else f"sorted, {self.budget} padded tokens a batch"
        few = ", few shapes" if self.filled else ""
        return f"{self.processes} process(es) x {self.threads} thread(s), {how}{few}"


class Batch(NamedTuple):
    """Texts that run together, and the shape that they are padded to."""

    texts: Sequence[int]
    rows: int
    length: int


def plans(cores: int, *, compiles: bool = False) -> list[Plan]:
    """Returns all plans worth trying on so many cores, with a runtime that compiles for each new shape or not.

    Where it does, each plan costs seconds before it has run: what was never near the best is left out (decision
    record 0026).
    """
    whole = dict.fromkeys([(cores, 1), (1, cores)])
    if compiles:
        kinds: list[tuple[int | None, bool]] = [(_EXACT_BUDGET, False), *((budget, True) for budget in BUDGETS[1:])]
        return [Plan(*split, *kind) for split in whole for kind in kinds]
    kinds = [(budget, False) for budget in (None, *BUDGETS)]
    return [Plan(*split, *kind) for split in dict.fromkeys([*whole, (1, 1)]) for kind in kinds]


def batches(lengths: Sequence[int], plan: Plan) -> list[Batch]:
    """Returns batches of indices into `lengths`, every text once, as the plan says."""
    if plan.budget is None:
        return [Batch([index], 1, length) for index, length in enumerate(lengths)]
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    return _filled(order, lengths, plan.budget) if plan.filled else _exact(order, lengths, plan.budget)


def _exact(order: Sequence[int], lengths: Sequence[int], budget: int) -> list[Batch]:
    found, batch = [], list[int]()
    for index in order:
        # Sorted upwards, the newest is the longest: it sets the padded length of all.
        if batch and (len(batch) + 1) * lengths[index] > budget:
            found.append(Batch(batch, len(batch), lengths[batch[-1]]))
            batch = []
        batch.append(index)
    if batch:
        found.append(Batch(batch, len(batch), lengths[batch[-1]]))
    return found


def _filled(order: Sequence[int], lengths: Sequence[int], budget: int) -> list[Batch]:
    """From the longest down: shorter texts fill the rows that the long ones leave, and only the last batch has gaps."""
    found, left = [], len(order)
    while left:
        length = -(-lengths[order[left - 1]] // _STEP) * _STEP
        rows = 1 << (max(1, budget // length).bit_length() - 1)
        while rows >= 2 * left:
            rows //= 2
        taken = min(rows, left)
        found.append(Batch(order[left - taken : left], rows, length))
        left -= taken
    return found


def shares(count: int, processes: int) -> list[range]:
    """Cuts `count` texts into interleaved shares: several a process, so that a slow core takes fewer.

    Not so many that a share is too small to sort well: 25 texts in a sorted batch are 40 % padding.
    """
    if processes == 1:
        return [range(count)]
    each = max(1, min(_SHARES, count // (processes * _SORTS_WELL)))
    parts = max(1, min(count, processes * each))
    return [range(part, count, parts) for part in range(parts)]
