"""How a loop could go about it: which processes, which batches. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

BUDGETS = (256, 512, 1024, 2048)
"""Padded tokens of one batch; measured on CPUs, more gains nothing."""


@dataclass(frozen=True, slots=True, order=True)
class Plan:
    """One way to run a loop.

    Attributes:
        processes: Worker processes.
        threads: Threads of each one's passes.
        budget: Padded tokens of a batch of texts sorted by length; None runs them one by one, in exact length.
    """

    processes: int
    threads: int
    budget: int | None

    def __str__(self) -> str:
        how = "one by one" if self.budget is None else f"sorted, {self.budget} padded tokens a batch"
        return f"{self.processes} process(es) x {self.threads} thread(s), {how}"


def plans(cores: int) -> list[Plan]:
    """Returns all plans worth trying on so many cores."""
    splits = dict.fromkeys([(cores, 1), (1, cores), (1, 1)])
    return [Plan(processes, threads, budget) for processes, threads in splits for budget in (None, *BUDGETS)]


def batches(lengths: Sequence[int], budget: int | None) -> Iterator[list[int]]:
    """Yields batches of indices into `lengths` within the budget of padded tokens, short texts first."""
    if budget is None:
        yield from ([index] for index in range(len(lengths)))
        return
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        # Sorted upwards, the newest is the longest: it sets the padded length of all.
        if batch and (len(batch) + 1) * lengths[index] > budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def shares(count: int, processes: int, *, each: int = 4) -> list[range]:
    """Cuts `count` texts into interleaved shares, `each` for a process, so that a slow core takes fewer."""
    parts = max(1, min(count, processes * each)) if processes > 1 else 1
    return [range(part, count, parts) for part in range(parts)]
