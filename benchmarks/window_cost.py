"""What a decision of the window costs, in CPU microseconds, with 10,000 items in it.

`python benchmarks/window_cost.py`. Ratios are to sorting the same items once in the same run (`sorted` by length),
since microseconds of a shared machine say little; of equal runs the least counts.
"""

import random
import time
from collections.abc import Callable
from dataclasses import replace

from batchfleet.batching.batch import Batch, BatchLimits
from batchfleet.batching.buckets import EXACT, LengthBuckets
from batchfleet.batching.cost import CostModel
from batchfleet.batching.item import Item
from batchfleet.batching.window import PassGroup, Window
from batchfleet.inference.shapes import FixedShapes
from batchfleet.jobs.job import LANES, Lane
from batchfleet.models.config import Limits

ITEMS = 10_000
MODELS = {
    "cheap rows": CostModel(fixed_s=0.005, per_token_s=1e-6),
    "dear rows": CostModel(fixed_s=0.0005, per_token_s=0.0001),
}
LIMITS = BatchLimits(max_items=64, max_tokens=4096, max_delay_s=0.005)


def items(count: int, *, lanes: tuple[Lane, ...] = (Lane.BULK,), deadline: float | None = None) -> list[Item]:
    """Returns items of lognormal lengths, mean about 40."""
    chance = random.Random(1)
    made = []
    for key in range(count):
        length = max(3, min(256, round(chance.lognormvariate(3.4, 0.75))))
        until = None if deadline is None else deadline + chance.random()
        made.append(Item(key, f"job{key}", 0, length, chance.choice(lanes), key * 1e-3, until, "m", None))
    return made


def cpu(work: Callable[[], object], repeat: int = 5) -> float:
    """Returns the least CPU seconds of several runs."""
    best = float("inf")
    for _ in range(repeat):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best


def filled(held: list[Item], cost: CostModel, buckets: LengthBuckets) -> Window:
    """Returns a window that holds the items."""
    window = Window(lambda _: PassGroup(LIMITS, cost, buckets))
    window.add(held)
    return window


def decide(held: list[Item], truth: CostModel, buckets: LengthBuckets) -> tuple[list[float], int]:
    """Returns the CPU seconds of each decision, with as many items in the window throughout, and the items taken.

    The cost model learns from each pass, as it does in a worker; the first quarter is not counted.
    """
    window = filled(held, truth, buckets)
    chance = random.Random(2)
    cost = truth
    spent: list[float] = []
    taken = ran = 0
    while ran < 4 * len(held):
        began = time.process_time()
        batch = window.next_batch(1e6)
        seconds = time.process_time() - began
        assert isinstance(batch, Batch)
        ran += len(batch.items)
        if ran > len(held):
            spent.append(seconds)
            taken += len(batch.items)
        rows, length = buckets.shape(len(batch.items), batch.items[-1].length)
        cost = cost.observed(rows, length, truth.seconds(rows, length) * chance.uniform(0.95, 1.1))
        window.update_cost("m", cost)
        window.add([_after(item) for item in batch.items])
    return spent, taken


def decisions(held: list[Item], truth: CostModel, buckets: LengthBuckets, repeat: int = 3) -> tuple[float, int, int]:
    """Returns CPU seconds, batches and items; each decision counts with the least that equal runs have needed."""
    runs = [decide(held, truth, buckets) for _ in range(repeat)]
    least = [min(each) for each in zip(*(spent for spent, _ in runs), strict=True)]
    return sum(least), len(least), runs[0][1]


def _after(item: Item) -> Item:
    """Returns an item like one that ran, submitted later: the window stays full."""
    key = item.key + ITEMS
    return replace(item, key=key, job=f"job{key}", arrived=item.arrived + ITEMS * 1e-3)


def main() -> None:
    """Prints the table."""
    held = items(ITEMS)
    sorting = cpu(lambda: sorted(held, key=lambda item: item.length)) / ITEMS
    print(f"{'sorting the items once':44} {sorting * 1e6:7.3f} µs an item")
    adding = cpu(lambda: filled(held, MODELS["dear rows"], EXACT)) / ITEMS
    print(f"{'adding':44} {adding * 1e6:7.3f} µs an item   {adding / sorting:5.1f} x sorting")
    shapes_of = FixedShapes(Limits(max_batch_tokens=LIMITS.max_tokens))
    fixed = LengthBuckets(shapes_of.lengths, shapes_of.shape)
    for shapes, buckets in (("exact", EXACT), ("fixed", fixed)):
        for name, cost in MODELS.items():
            for kind, mixed in (("one lane", items(ITEMS)), ("three lanes", items(ITEMS, lanes=LANES))):
                spent, batches, taken = decisions(mixed, cost, buckets)
                each, batch = spent / taken, spent / batches
                print(
                    f"{f'deciding: {shapes}, {name}, {kind}':44} {each * 32e6:7.1f} µs for 32 items "
                    f"{batch * 1e6:7.1f} µs a batch of {taken / batches:5.1f}  {each / sorting:5.1f} x sorting"
                )
    window = filled(held, MODELS["dear rows"], EXACT)
    spent = cpu(lambda: [window.discard_job(item.job) for item in held], repeat=1) / ITEMS
    print(f"{'discarding a job of one item':44} {spent * 1e6:7.3f} µs an item   {spent / sorting:5.1f} x sorting")
    window = filled(items(ITEMS, deadline=1.0), MODELS["dear rows"], EXACT)
    spent = cpu(lambda: window.pop_expired(5.0), repeat=1) / ITEMS
    print(f"{'expiring':44} {spent * 1e6:7.3f} µs an item   {spent / sorting:5.1f} x sorting")


if __name__ == "__main__":
    main()
