"""The window's promises: budgets, order, waiting bounds, and nothing lost or doubled."""

import sys
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.batching.batch import Batch, BatchLimits, ReleaseReason, Wait
from batchfleet.batching.buckets import LengthBuckets
from batchfleet.batching.cost import CostModel
from batchfleet.batching.item import LANE_PATIENCE_S, Item
from batchfleet.batching.window import PassGroup, Window
from batchfleet.jobs.job import LANES, Lane

FREE = CostModel(fixed_s=0.0, per_token_s=0.0)


def item(
    key: int,
    length: int = 10,
    *,
    lane: Lane = Lane.BULK,
    arrived: float = 0.0,
    deadline: float | None = None,
    pass_key: str = "m",
    job: str | None = None,
) -> Item:
    return Item(key, job or f"job{key}", 0, length, lane, arrived, deadline, pass_key, None)


def window(
    limits: BatchLimits | None = None,
    cost: CostModel = FREE,
    buckets: Sequence[int] = (),
    alone: Sequence[str] = (),
) -> Window:
    bounds = limits or BatchLimits(max_items=8, max_tokens=100, max_delay_s=1.0)
    return Window(lambda key: PassGroup(bounds, cost, LengthBuckets(tuple(buckets)), alone=key in alone))


def drain(filled: Window, now: float = 1e6) -> list[Batch]:
    batches = []
    while isinstance(decision := filled.next_batch(now, flush=True), Batch):
        batches.append(decision)
    return batches


def formed(decision: Batch | Wait) -> Batch:
    assert isinstance(decision, Batch)
    return decision


items_of_any_kind = st.lists(
    st.builds(
        lambda length, lane, arrived, group: (length, lane, arrived, group),
        st.integers(1, 130),
        st.sampled_from(LANES),
        st.floats(0, 100),
        st.sampled_from("ab"),
    ),
    max_size=120,
)


@given(items_of_any_kind, st.integers(1, 20), st.integers(1, 400), st.sampled_from([(), (16, 32, 64, 128)]))
def test_every_item_runs_once_within_the_budgets_and_with_its_own_kind(
    kinds: list[tuple[int, Lane, float, str]], max_items: int, max_tokens: int, buckets: tuple[int, ...]
) -> None:
    """The four promises that every other stage builds on, whatever the mix."""
    limits = BatchLimits(max_items=max_items, max_tokens=max_tokens)
    filled = window(limits, buckets=buckets)
    items = [item(i, n, lane=lane, arrived=at, pass_key=group) for i, (n, lane, at, group) in enumerate(kinds)]
    filled.add(items)

    batches = drain(filled)

    assert sorted(one.key for batch in batches for one in batch.items) == [one.key for one in items]
    assert len(filled) == 0
    for batch in batches:
        assert len({one.pass_key for one in batch.items}) == 1
        assert len(batch.items) <= max_items
        assert batch.padded_tokens <= max_tokens or len(batch.items) == 1
        assert batch.padded_length >= max(one.length for one in batch.items)
        assert [one.length for one in batch.items] == sorted(one.length for one in batch.items)


@given(items_of_any_kind)
def test_the_most_urgent_item_is_always_in_the_next_batch(kinds: list[tuple[int, Lane, float, str]]) -> None:
    """Ageing bounds every wait: nobody can be passed over by the batch that forms now."""
    filled = window()
    items = [item(i, n, lane=lane, arrived=at, pass_key=group) for i, (n, lane, at, group) in enumerate(kinds)]
    filled.add(items)
    left = {one.key: one for one in items}

    while left:
        batch = formed(filled.next_batch(1e6, flush=True))
        first = min(left.values(), key=lambda one: one.urgency)
        assert first.key in {one.key for one in batch.items}
        for one in batch.items:
            del left[one.key]


def test_a_flood_of_online_items_does_not_starve_bulk() -> None:
    """B13: a bulk item is passed over for its lane's patience at most."""
    filled = window(BatchLimits(max_items=1, max_tokens=100))
    filled.add([item(0, lane=Lane.BULK, arrived=0.0)])
    patience = LANE_PATIENCE_S[Lane.BULK]
    filled.add([item(1 + i, lane=Lane.ONLINE, arrived=float(i)) for i in range(int(patience) * 2)])

    order = [batch.items[0].key for batch in drain(filled)]

    assert order.index(0) <= patience + 1


def test_an_item_over_the_token_budget_runs_alone_and_hinders_nobody() -> None:
    """B4: no spinning on an item that fits no batch."""
    filled = window(BatchLimits(max_items=32, max_tokens=100))
    filled.add([item(0, 101, arrived=0.0), *(item(1 + i, 9, arrived=1.0) for i in range(10))])

    batches = drain(filled)

    assert [len(batch.items) for batch in batches] == [1, 10]


def test_a_full_batch_runs_at_once() -> None:
    filled = window(BatchLimits(max_items=2, max_tokens=100, max_delay_s=60), CostModel(1.0, 0.0))
    filled.add([item(0), item(1), item(2)])

    assert formed(filled.next_batch(0.0, 1e9)).reason is ReleaseReason.FULL


def test_a_lone_item_runs_at_once_when_nothing_else_is_expected() -> None:
    """An idle fleet answers a single request without any delay."""
    filled = window(BatchLimits(max_delay_s=60), CostModel(fixed_s=0.01, per_token_s=0.0))
    filled.add([item(0, arrived=0.0)])

    assert formed(filled.next_batch(0.0, arrivals_per_s=1.0)).reason is ReleaseReason.DRAINED


def test_waiting_pays_while_arrivals_are_dense_and_ends_with_the_delay() -> None:
    limits = BatchLimits(max_items=100, max_tokens=10_000, max_delay_s=0.5)
    filled = window(limits, CostModel(fixed_s=0.01, per_token_s=0.0))
    filled.add([item(0, arrived=10.0)])

    assert filled.next_batch(10.1, arrivals_per_s=1_000) == Wait(until=10.5)
    assert formed(filled.next_batch(10.5, arrivals_per_s=1_000)).reason is ReleaseReason.DELAY


def test_a_deadline_ends_the_waiting_in_time_for_the_pass() -> None:
    limits = BatchLimits(max_items=100, max_tokens=10_000, max_delay_s=60)
    filled = window(limits, CostModel(fixed_s=0.25, per_token_s=0.0))
    filled.add([item(0, arrived=0.0, deadline=2.0)])

    assert filled.next_batch(1.0, arrivals_per_s=1e6) == Wait(until=1.75)
    assert formed(filled.next_batch(1.75, arrivals_per_s=1e6)).reason is ReleaseReason.SLACK


def test_spare_places_of_an_online_batch_go_to_bulk_of_like_length_only() -> None:
    filled = window(BatchLimits(max_items=8, max_tokens=1_000))
    filled.add([item(0, 20, lane=Lane.ONLINE)])
    filled.add([item(1, 20), item(2, 19), item(3, 21), item(4, 3)])

    batch = formed(filled.next_batch(0.0))

    assert {one.key for one in batch.items} == {0, 1, 2}
    assert batch.padded_length == 20


def test_online_items_are_not_pushed_out_by_bulk_of_nearer_length() -> None:
    filled = window(BatchLimits(max_items=2, max_tokens=1_000))
    filled.add([item(0, 20, lane=Lane.ONLINE), item(1, 30, lane=Lane.ONLINE), item(2, 20), item(3, 20)])

    assert {one.key for one in formed(filled.next_batch(0.0)).items} == {0, 1}


def test_neighbours_by_length_join_first() -> None:
    filled = window(BatchLimits(max_items=3, max_tokens=1_000))
    filled.add([item(0, 50, arrived=0.0), item(1, 4, arrived=1.0), item(2, 49, arrived=1.0), item(3, 51, arrived=1.0)])

    assert {one.key for one in formed(filled.next_batch(9.0)).items} == {0, 2, 3}


def test_a_suspect_runs_with_its_own_items_only() -> None:
    filled = window(alone=["suspect"])
    filled.add([item(0, pass_key="suspect", job="s"), item(1, pass_key="suspect", job="s"), item(2)])

    first = formed(filled.next_batch(0.0))

    assert (first.reason, first.jobs) == (ReleaseReason.ALONE, ("s",))


def test_expired_items_leave_and_name_their_jobs_once() -> None:
    filled = window()
    filled.add([item(0, deadline=5.0, job="a"), item(1, deadline=5.0, job="a"), item(2, deadline=9.0), item(3)])

    assert filled.next_deadline() == 5.0
    assert filled.pop_expired(4.9) == []
    assert filled.pop_expired(5.0) == ["a"]
    assert filled.next_deadline() == 9.0
    assert {one.key for one in filled} == {2, 3}


def test_discarding_a_job_takes_all_its_items_out() -> None:
    filled = window()
    filled.add([item(0, job="a"), item(1, job="b"), item(2, job="a")])

    assert filled.discard_job("a") == 2
    assert filled.discard_job("a") == 0
    assert [one.key for batch in drain(filled) for one in batch.items] == [1]


def test_an_item_is_taken_once() -> None:
    filled = window()
    filled.add([item(0)])

    with pytest.raises(ValueError, match="in the window already"):
        filled.add([item(0)])


def test_an_expected_pass_longer_than_its_bound_takes_fewer_items() -> None:
    """`max_pass_ms` is what an online job waits for behind a bulk pass at most."""
    limits = BatchLimits(max_items=64, max_tokens=10_000, max_pass_s=0.1)
    filled = window(limits, CostModel(fixed_s=0.01, per_token_s=0.001))
    filled.add([item(i, 10) for i in range(40)])

    assert [len(batch.items) for batch in drain(filled)] == [9, 9, 9, 9, 4]


def test_an_empty_window_waits_for_items() -> None:
    assert window().next_batch(0.0) == Wait(until=None)


def test_groups_do_not_pile_up() -> None:
    """A key may name a suspect or an adapter: seen once, gone with its items."""
    made: list[object] = []

    def group_for(key: object) -> PassGroup:
        made.append(key)
        return PassGroup(BatchLimits())

    filled = Window(group_for)
    for key in range(3):
        filled.add([item(key, pass_key="one")])
        drain(filled)

    assert made == ["one", "one", "one"]
    filled.update_cost("one", CostModel())


def test_a_lifted_deadline_expires_nothing_and_loses_nothing() -> None:
    filled = window()
    filled.add([item(0, deadline=5.0, job="a"), item(1, deadline=5.0, job="a"), item(2, deadline=9.0, job="b")])

    filled.lift_deadline("a")
    filled.lift_deadline("unknown")

    assert filled.next_deadline() == 9.0
    assert filled.pop_expired(6.0) == []
    assert sorted(one.key for batch in drain(filled) for one in batch.items) == [0, 1, 2]


urgent_or_not = st.lists(
    st.tuples(
        st.integers(1, 100),
        st.sampled_from(LANES),
        st.floats(0, 10),
        st.none() | st.floats(10, 60),
        st.sampled_from("ab"),
    ),
    min_size=1,
    max_size=30,
)


@given(urgent_or_not, st.floats(1, 1e6))
def test_nothing_expires_while_the_device_idles_for_company(
    kinds: list[tuple[int, Lane, float, float | None, str]], arrivals_per_s: float
) -> None:
    """Whoever has the nearest deadline, in any lane or group, is served before it: by the leader's pass, or next."""
    cost = CostModel(fixed_s=0.5, per_token_s=0.0)
    filled = window(BatchLimits(max_items=64, max_tokens=10_000, max_delay_s=100.0), cost)
    filled.add(
        [
            item(key, length, lane=lane, arrived=at, deadline=due, pass_key=group)
            for key, (length, lane, at, due, group) in enumerate(kinds)
        ]
    )
    nearest = filled.next_deadline()

    decision = filled.next_batch(5.0, arrivals_per_s)

    if isinstance(decision, Wait) and nearest is not None:
        assert decision.until is not None
        assert decision.until <= nearest - 0.5
    if isinstance(decision, Wait):
        assert isinstance(filled.next_batch(decision.until or 0.0, arrivals_per_s), Batch)


def test_a_neighbour_that_would_expire_ends_the_waiting() -> None:
    """The leader has patience; the item behind it, of another group, has none left."""
    filled = window(BatchLimits(max_items=64, max_delay_s=50.0), CostModel(fixed_s=0.5, per_token_s=0.0))
    filled.add([item(0, lane=Lane.ONLINE), item(1, lane=Lane.BULK, deadline=20.0, pass_key="other")])

    assert filled.next_batch(1.0, 1e6) == Wait(until=19.5)
    assert formed(filled.next_batch(19.5, 1e6)).reason is ReleaseReason.SLACK


def test_a_decision_that_may_wait_takes_no_step_for_each_key() -> None:
    """Adapters bring many keys: what a decision looks at must not grow with them."""
    looks = []
    for keys in (10, 1000):
        filled = window(BatchLimits(max_items=64, max_delay_s=50.0), CostModel(fixed_s=0.5, per_token_s=0.0))
        filled.add([item(key, pass_key=f"adapter{key}", arrived=key / keys) for key in range(keys)])
        filled.next_batch(1.0, 1e6)
        counted = 0

        def count(_frame: object, event: str, _arg: object) -> None:
            nonlocal counted
            counted += event in {"call", "c_call"}

        sys.setprofile(count)
        try:
            decision = filled.next_batch(1.0, 1e6)
        finally:
            sys.setprofile(None)
        assert decision == Wait(until=50.0)
        looks.append(counted)

    assert looks[1] < 2 * looks[0]


def test_a_large_job_without_a_deadline_is_not_walked_for_each_batch() -> None:
    filled = window()
    filled.add([item(key, job="large") for key in range(2000)])
    counted = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal counted
        counted += event == "line"

    def trace(*_: object) -> Callable[..., object]:
        return count

    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        filled.lift_deadline("large")
    finally:
        sys.settrace(None)
    assert counted < 100
