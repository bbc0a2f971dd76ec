"""What a decision costs the device: total device time of a backlog against the best plan that a sweep finds."""

import random
from collections.abc import Sequence

import pytest

from batchfleet.batching.batch import Batch, BatchLimits
from batchfleet.batching.buckets import EXACT, LengthBuckets
from batchfleet.batching.ceilings import UNBOUNDED, Ceilings
from batchfleet.batching.cost import CostModel
from batchfleet.batching.item import Item
from batchfleet.batching.prices import DISPATCH_S
from batchfleet.batching.window import PassGroup, Window
from batchfleet.inference.shapes import FixedShapes
from batchfleet.jobs.job import Lane
from batchfleet.models.config import Limits

GPU = CostModel(fixed_s=0.004, per_token_s=1e-6, per_square_s=1e-9)
INT8 = CostModel(fixed_s=0.0006, per_token_s=75e-6, per_square_s=1.2e-7)
BF16 = CostModel(fixed_s=0.0022, per_token_s=42e-6, per_square_s=5e-8)
LIMITS = BatchLimits(max_items=64, max_tokens=1024, max_pass_s=2.0)
FIXED_SHAPES = FixedShapes(Limits(max_batch_items=64, max_batch_tokens=1024))
FIXED = LengthBuckets(FIXED_SHAPES.lengths, FIXED_SHAPES.shape)


def lognormal(count: int, seed: int = 0) -> list[int]:
    """Returns lengths of texts as they come, of mean about 40 tokens."""
    chance = random.Random(seed)
    return [max(3, min(256, round(chance.lognormvariate(3.4, 0.75)))) for _ in range(count)]


def made(lengths: Sequence[int], lane: Lane = Lane.BULK, first: int = 0) -> list[Item]:
    return [Item(first + k, f"j{first + k}", 0, n, lane, 0.0, None, "m", None) for k, n in enumerate(lengths)]


def window(cost: CostModel, buckets: LengthBuckets = EXACT, limits: BatchLimits = LIMITS) -> Window:
    return Window(lambda _: PassGroup(limits, cost, buckets))


def backlog(filled: Window, lengths: Sequence[int], size: int = 1 << 30) -> list[list[int]]:
    """Returns the lengths of each batch, of a backlog of which the window holds `size` items at a time."""
    waiting = made(lengths)
    ran: list[list[int]] = []
    while True:
        room = size - len(filled)
        filled.add(waiting[:room])
        waiting = waiting[room:]
        batch = filled.next_batch(1e6, flush=True)
        if not isinstance(batch, Batch):
            return ran
        ran.append([item.length for item in batch.items])


def device_seconds(batches: Sequence[Sequence[int]], cost: CostModel, buckets: LengthBuckets) -> float:
    return sum(cost.seconds(*buckets.shape(len(batch), max(batch))) + DISPATCH_S for batch in batches)


def padding(batches: Sequence[Sequence[int]], buckets: LengthBuckets) -> float:
    shapes = [buckets.shape(len(batch), max(batch)) for batch in batches]
    return 1 - sum(map(sum, batches)) / sum(rows * length for rows, length in shapes)


def best_plan(lengths: Sequence[int], cost: CostModel, buckets: LengthBuckets, limits: BatchLimits) -> float:
    """Returns the device seconds of the best of many plans: sorted, cut at a token and an item budget."""
    longest_first = sorted(lengths, reverse=True)
    found = float("inf")
    for tokens in (64, 128, 256, 384, 512, 768, 1024):
        for items in (1, 2, 4, 8, 12, 16, 24, 32, 48, 64):
            plan, left = [], longest_first
            while left:
                padded = buckets.round_up(left[0])
                count = max(1, min(items, limits.max_items, min(tokens, limits.max_tokens) // padded))
                plan.append(left[:count])
                left = left[count:]
            found = min(found, device_seconds(plan, cost, buckets))
    return found


@pytest.mark.parametrize("cost", [GPU, INT8, BF16], ids=["gpu", "int8", "bf16"])
@pytest.mark.parametrize("buckets", [EXACT, FIXED], ids=["exact", "fixed"])
def test_a_backlog_takes_no_longer_than_the_best_plan_of_a_sweep(cost: CostModel, buckets: LengthBuckets) -> None:
    lengths = lognormal(1000)

    ours = device_seconds(backlog(window(cost, buckets), lengths), cost, buckets)

    assert ours <= 1.03 * best_plan(lengths, cost, buckets, LIMITS)


@pytest.mark.parametrize("cost", [GPU, INT8, BF16], ids=["gpu", "int8", "bf16"])
def test_little_is_padded_under_backlog_through_a_window_of_a_thousand(cost: CostModel) -> None:
    """Rows that are padding counted: 4 % where any shape runs, 17 % where lengths are multiples of 16 (0025)."""
    lengths = lognormal(5000)

    exact = padding(backlog(window(cost), lengths, size=1024), EXACT)
    fixed = padding(backlog(window(cost, FIXED), lengths, size=1024), FIXED)

    assert exact <= 0.04
    assert fixed <= 0.17


def test_a_window_refilled_from_a_backlog_does_as_well_as_one_that_holds_it_all() -> None:
    """Leading with the longest took 1.35 times as long here: what is rare came alone, again and again."""
    lengths = lognormal(5000)

    refilled = device_seconds(backlog(window(BF16), lengths, size=512), BF16, EXACT)
    whole = device_seconds(backlog(window(BF16), lengths), BF16, EXACT)

    assert refilled <= 1.03 * whole


def test_dear_rows_make_small_batches_and_cheap_rows_large_ones() -> None:
    lengths = [40] * 640
    limits = BatchLimits(max_items=64, max_tokens=16_384, max_pass_s=2.0)

    small = backlog(window(INT8, limits=limits), lengths)
    large = backlog(window(GPU, limits=limits), lengths)

    assert max(len(batch) for batch in small) <= 24
    assert min(len(batch) for batch in large) == 64


def test_a_device_that_loses_by_batching_gets_batches_of_one() -> None:
    losing = CostModel(fixed_s=0.0, per_token_s=1e-4)
    for count, factor in ((1, 0.5), (2, 1.0), (4, 1.0), (8, 1.1), (16, 1.2)):
        for _ in range(80):
            losing = losing.observed(count, 64, factor * 1e-4 * count * 64)

    batches = backlog(window(losing), [64] * 16)

    assert [len(batch) for batch in batches] == [1] * 16


def test_two_lengths_share_a_pass_only_where_that_is_cheaper_than_two() -> None:
    """64 jobs of two alternating lengths: few batches, and none padded, where rows are dear."""
    alternating = [16, 64] * 32

    dear = backlog(window(INT8), alternating)
    free = backlog(window(CostModel(fixed_s=0.01, per_token_s=1e-9)), [16, 64] * 4)

    assert padding(dear, EXACT) == 0.0
    assert len(dear) <= 8
    assert len(free) == 1


def test_rows_that_padding_would_waste_go_to_shorter_items() -> None:
    """Five rows run as eight: three shorter items ride for nothing."""
    batches = backlog(window(BF16, FIXED), [64] * 5 + [50] * 3)

    assert batches == [[50] * 3 + [64] * 5]


def test_a_preferred_size_is_where_growing_and_waiting_end() -> None:
    limits = BatchLimits(max_items=64, max_tokens=16_384, max_delay_s=60, preferred_items=10)

    assert [len(batch) for batch in backlog(window(GPU, limits=limits), [20] * 25)] == [10, 10, 5]


def test_bulk_rides_with_an_online_item_only_where_rows_are_nearly_free() -> None:
    def together(cost: CostModel) -> int:
        filled = window(cost)
        filled.add(made([40] * 60))
        filled.add(made([40], Lane.ONLINE, first=100))
        batch = filled.next_batch(0.0)
        assert isinstance(batch, Batch)
        assert 100 in {item.key for item in batch.items}
        return len(batch.items)

    assert together(INT8) == 1
    assert together(GPU) == 1024 // 40


def test_ceilings_bound_a_batch_whatever_its_padding() -> None:
    ceilings = UNBOUNDED.lowered(64, 12, at=0.0)  # six rows of 64 may be tried
    for buckets, most in ((EXACT, 6), (FIXED, 4)):
        filled = window(GPU, buckets)
        filled.add(made([64] * 30))
        filled.update_ceilings("m", ceilings)
        filled.update_ceilings("unknown", ceilings)

        assert max(len(batch) for batch in backlog(filled, [])) == most

    group = PassGroup(LIMITS, GPU, ceilings=ceilings)
    assert (group.fits(6, 64), group.fits(7, 64), group.fits(7, 40)) == (True, False, True)


def test_lifted_ceilings_let_batches_grow_again() -> None:
    filled = window(GPU)
    filled.add(made([64] * 30))
    filled.update_ceilings("m", Ceilings().lowered(64, 4, at=0.0))
    filled.update_ceilings("m", UNBOUNDED)

    assert len(backlog(filled, [])[0]) == 16
