"""The window at a simulated device: streams that others fall over, and how long an item waits at most.

The device takes a batch whenever it is free; a pass lasts what the cost model says.
"""

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.batching.batch import Batch, BatchLimits, Wait
from batchfleet.batching.buckets import EXACT, LengthBuckets
from batchfleet.batching.cost import ArrivalRate, CostModel
from batchfleet.batching.item import LANE_PATIENCE_S, Item
from batchfleet.batching.window import PassGroup, Window
from batchfleet.jobs.job import LANES, Lane
from tests.unit.batching.test_choose import BF16, FIXED, GPU, INT8, lognormal

LIMITS = BatchLimits(max_items=64, max_tokens=1024, max_delay_s=0.02, max_pass_s=0.5)
Ran = list[tuple[float, float, Batch]]
"""Start, seconds and items of each pass."""


def stream(lengths: Sequence[int], times: Sequence[float], lane: Lane = Lane.ONLINE, first: int = 0) -> list[Item]:
    pairs = enumerate(zip(lengths, times, strict=True))
    return [Item(first + k, f"j{first + k}", 0, n, lane, at, None, "m", None) for k, (n, at) in pairs]


def serve(
    items: Sequence[Item],
    cost: CostModel,
    buckets: LengthBuckets = EXACT,
    limits: BatchLimits = LIMITS,
    devices: int = 1,
) -> Ran:
    """Returns the passes of devices that serve the items from one window as they arrive."""
    window, rate = Window(lambda _: PassGroup(limits, cost, buckets)), ArrivalRate()
    coming = sorted(items, key=lambda item: item.arrived)
    now, place, ran = 0.0, 0, Ran()
    free = [0.0] * devices
    while place < len(coming) or len(window):
        device = free.index(min(free))
        now = max(now, free[device])
        while place < len(coming) and coming[place].arrived <= now:
            window.add([coming[place]])
            rate = rate.arrived(1, coming[place].arrived)
            place += 1
        decision = window.next_batch(now, rate.at(now))
        if isinstance(decision, Batch):
            seconds = cost.seconds(*buckets.shape(len(decision.items), decision.items[-1].length))
            ran.append((now, seconds, decision))
            free[device] = now + seconds
        else:
            moments = [coming[place].arrived] if place < len(coming) else []
            now = min([*moments, *([] if decision.until is None else [decision.until])])
    return ran


def waits(ran: Ran, chosen: Callable[[Item], bool] = lambda _: True) -> list[float]:
    return sorted(began - item.arrived for began, _, batch in ran for item in batch.items if chosen(item))


def longest(ran: Ran) -> float:
    return max(seconds for _, seconds, _ in ran)


def peak(cost: CostModel, buckets: LengthBuckets) -> float:
    """Returns items a second of a device that never runs out of work."""
    ran = serve(stream(lognormal(1500), [0.0] * 1500), cost, buckets)
    return 1500 / sum(seconds for _, seconds, _ in ran)


@pytest.mark.parametrize("cost", [GPU, INT8, BF16], ids=["gpu", "int8", "bf16"])
@pytest.mark.parametrize("buckets", [EXACT, FIXED], ids=["exact", "fixed"])
@pytest.mark.parametrize(("load", "passes", "devices"), [(0.5, 1, 1), (0.7, 3, 1), (0.7, 1, 2)])
def test_p99_of_the_wait_is_bounded_by_the_delay_and_full_passes(
    cost: CostModel, buckets: LengthBuckets, load: float, passes: int, devices: int
) -> None:
    """One pass at half of what a backlog reaches, and at 70 % where two devices share a window; three where one must.

    The few that wait at a time then are dearer than a thousand, and keep one device busy throughout.
    """
    chance, now, times = random.Random(5), 0.0, []
    offered = devices * load * peak(cost, buckets)
    for _ in range(1500):
        now += chance.expovariate(offered)
        times.append(now)

    ran = serve(stream(lognormal(1500, seed=2), times), cost, buckets, devices=devices)

    waited = waits(ran)
    full_pass = max(cost.seconds(*buckets.shape(1024 // length, length)) for length in (16, 32, 64, 128, 256))
    assert waited[int(0.99 * len(waited))] <= LIMITS.max_delay_s + passes * full_pass


@pytest.mark.parametrize("cost", [GPU, INT8, BF16], ids=["gpu", "int8", "bf16"])
def test_an_online_item_waits_for_the_pass_in_progress_and_leads_the_next(cost: CostModel) -> None:
    bulk = stream(lognormal(800), [0.0] * 800, Lane.BULK)
    online = stream(lognormal(10, seed=9), [0.5 * LIMITS.max_pass_s * (1 + k) for k in range(10)], first=1000)

    ran = serve([*bulk, *online], cost)

    for item in online:
        running = [seconds for began, seconds, _ in ran if began <= item.arrived < began + seconds]
        (start,) = (began for began, _, batch in ran if item in batch.items)
        assert start - item.arrived <= max(running, default=LIMITS.max_delay_s) + 1e-9


def test_a_flood_of_online_items_delays_bulk_by_its_patience_only() -> None:
    """B13, at twice what the device can do."""
    items = stream([40] * 9000, [k / 600 for k in range(9000)])
    items += stream([40] * 3, [0.0] * 3, Lane.STANDARD, first=10_000)

    ran = serve(items, INT8)

    bound = LANE_PATIENCE_S[Lane.STANDARD]
    aged = waits(ran, lambda item: item.lane is Lane.STANDARD)
    # Those online that arrived before the moment at which it is due go first: at this load the device lags behind.
    before = sum(1 for item in items if item.lane is Lane.ONLINE and item.arrived <= bound)
    assert aged[-1] <= before / 250 + longest(ran)


def test_a_large_item_behind_a_stream_of_small_ones_runs_in_its_turn() -> None:
    small = stream([5] * 4000, [k / 1000 for k in range(4000)])
    large = stream([256], [0.5], first=5000)

    ran = serve([*small, *large], INT8)

    assert waits(ran, lambda item: item.length == 256)[0] <= LIMITS.max_delay_s + 2 * longest(ran)


def test_two_alternating_lengths_starve_neither_and_pad_nothing() -> None:
    ran = serve(stream([8, 128] * 1000, [k / 120 for k in range(2000)]), INT8)

    assert waits(ran)[-1] <= LIMITS.max_delay_s + 3 * longest(ran)
    assert all(item.length == batch.padded_length for _, _, batch in ran for item in batch.items)


chances = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "discard", "expire", "form", "unform", "lift"]),
        st.integers(1, 6),
        st.integers(1, 130),
        st.sampled_from(LANES),
        st.sampled_from([None, 2.0, 20.0]),
        st.sampled_from("ab"),
    ),
    max_size=60,
)


@given(chances, st.integers(1, 12), st.integers(1, 400), st.sampled_from([EXACT, FIXED, LengthBuckets((32, 128))]))
def test_nothing_is_lost_or_doubled_whatever_happens(
    events: list[tuple[str, int, int, Lane, float | None, str]], max_items: int, max_tokens: int, buckets: LengthBuckets
) -> None:
    """Jobs of several items: added, formed, put back, withdrawn, expired; what runs can be put in order by job."""
    limits = BatchLimits(max_items=max_items, max_tokens=max_tokens, max_delay_s=0.5)
    window = Window(lambda _: PassGroup(limits, GPU, LengthBuckets(buckets.bounds)))
    due: dict[int, Item] = {}
    ran: list[Item] = []
    for now, (what, number, length, lane, deadline, group) in enumerate(events):
        if what == "add":
            until = None if deadline is None else now + deadline
            key = 10 * now
            added = [
                Item(key + k, f"j{now}", k, length + k, lane, float(now), until, group, None) for k in range(number)
            ]
            window.add(added)
            due |= {item.key: item for item in added}
        elif what == "discard":
            job = f"j{number}"
            gone = [key for key, item in due.items() if item.job == job]
            assert window.discard_job(job) == len(gone)
            due = {key: item for key, item in due.items() if item.job != job}
        elif what == "lift":
            window.lift_deadline(f"j{number}")
        elif what == "expire":
            kept = {item.key for item in window if item.deadline is None or item.deadline > now}
            expired = set(window.pop_expired(float(now)))
            assert expired == {item.job for key, item in due.items() if key not in kept}
            due = {key: item for key, item in due.items() if key in kept}
        elif isinstance(decision := window.next_batch(float(now), flush=True), Batch):
            assert len(decision.items) <= max_items
            assert len(decision.items) == 1 or len(decision.items) * decision.padded_length <= max_tokens
            if what == "unform":
                window.add(decision.items)
            else:
                ran += decision.items
                due = {key: item for key, item in due.items() if key not in {one.key for one in decision.items}}
        assert {item.key for item in window} == set(due)
        assert len(window) == len(due)
        deadlines = [item.deadline for item in window if item.deadline is not None]
        assert window.next_deadline() == min(deadlines, default=None)
    while isinstance(decision := window.next_batch(1e6, flush=True), Batch):
        ran += decision.items
    assert decision == Wait()
    assert len({item.key for item in ran}) == len(ran)
    by_job: dict[str, list[int]] = {}
    for item in ran:
        by_job.setdefault(item.job, []).append(item.index)
    assert all(len(set(indexes)) == len(indexes) for indexes in by_job.values())


def test_a_job_of_more_items_than_a_batch_is_split_and_complete() -> None:
    items = [Item(k, "big", k, 20 + k % 7, Lane.BULK, 0.0, None, "m", None) for k in range(300)]

    ran = serve(items, GPU)

    assert len(ran) > 4
    assert sorted(item.index for _, _, batch in ran for item in batch.items) == list(range(300))


def test_a_window_smaller_than_a_batch_does_not_wait_for_what_cannot_come() -> None:
    """A prefetch or lease setting below the batch size: the delay bounds the wait, whatever the preferred size."""
    limits = BatchLimits(max_items=64, max_tokens=16_384, max_delay_s=0.02, preferred_items=64)
    window = Window(lambda _: PassGroup(limits, GPU))
    window.add(stream([20] * 4, [10.0] * 4))

    assert window.next_batch(10.0, arrivals_per_s=1e6) == Wait(until=10.02)
    assert isinstance(window.next_batch(10.02, arrivals_per_s=1e6), Batch)


def test_nobody_waits_for_company_once_anybody_waits_too_long() -> None:
    """A leader that just came must not hold the device while bulk behind it has used up its delay."""
    window = Window(lambda _: PassGroup(LIMITS, GPU))
    window.add(stream([20], [9.0], Lane.BULK))
    window.add(stream([90], [10.0], first=1))

    assert isinstance(window.next_batch(10.0, arrivals_per_s=1e6), Batch)
