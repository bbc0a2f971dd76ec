"""The order of pulls: bulk cannot fill the window, and nobody starves."""

from collections import Counter
from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchfleet.broker.hint import MAX_IDS_PER_HINT, Flow
from batchfleet.broker.lanes import LANE_WEIGHTS, PullLedger, PullStep, free_room, hints_for
from batchfleet.jobs.job import LANES, Lane

FLOWS = tuple(Flow(model, lane) for lane in LANES for model in ("a", "b"))
windows = st.integers(1, 4096)
held_items = st.dictionaries(st.sampled_from(LANES), st.integers(0, 2000))


def pull(ledger: PullLedger, busy: Collection[Flow], budget: int) -> tuple[PullLedger, Counter[Flow]]:
    """Pulls `budget` hints in all, in the plan's order, while the busy flows never run dry."""
    taken: Counter[Flow] = Counter()
    for step in ledger.plan(FLOWS, dict.fromkeys(LANES, MAX_IDS_PER_HINT * budget)).steps:
        left = budget - taken.total() // MAX_IDS_PER_HINT
        first = next((flow for flow in step.flows if flow in busy), None)
        got = Counter({first: left * MAX_IDS_PER_HINT} if first else {})
        ledger = ledger.record(PullStep(step.flows, left), got)
        taken += got
        if first:
            break
    return ledger, taken


@given(windows, held_items)
def test_bulk_leaves_room_for_the_others(window: int, held: dict[Lane, int]) -> None:
    room = free_room(window, held)

    assert room[Lane.ONLINE] >= room[Lane.STANDARD] >= room[Lane.BULK] >= 0
    assert room[Lane.ONLINE] == max(0, window - sum(held.values()))
    if window >= 8 and held.get(Lane.ONLINE, 0) == 0 and room[Lane.BULK]:
        assert window - sum(held.values()) - room[Lane.BULK] >= window // 8


@given(windows)
def test_a_lane_alone_may_use_what_is_not_kept_for_more_urgent_ones(window: int) -> None:
    room = free_room(window, {})

    assert room[Lane.ONLINE] == window
    assert room[Lane.BULK] >= window * 3 // 4 - 2


def test_room_kept_for_online_is_not_kept_twice() -> None:
    """What online holds already counts as its kept room."""
    assert free_room(80, {Lane.ONLINE: 10})[Lane.STANDARD] == 70


@pytest.mark.parametrize(("items", "hints"), [(-1, 0), (0, 0), (1, 1), (32, 1), (33, 2), (1024, 32)])
def test_hints_for_room(items: int, hints: int) -> None:
    assert hints_for(items) == hints
    assert MAX_IDS_PER_HINT == 32


def test_a_fresh_worker_asks_the_urgent_lanes_first() -> None:
    plan = PullLedger().plan(FLOWS, {Lane.BULK: 64, Lane.STANDARD: 64, Lane.ONLINE: 64})

    assert [{flow.lane for flow in step.flows} for step in plan.steps] == [{lane} for lane in LANES]
    assert [step.max_hints for step in plan.steps] == [2, 2, 2]
    assert plan.waiting == PullStep(FLOWS, 2)


def test_lanes_without_room_or_flows_are_left_out() -> None:
    plan = PullLedger().plan(FLOWS[:2], {Lane.BULK: 64, Lane.ONLINE: 0})

    assert plan.steps == ()
    assert plan.waiting == PullStep((), 0)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from(LANES), max_size=60), st.integers(1, 4))
def test_online_is_first_when_it_has_waited(history: list[Lane], budget: int) -> None:
    """However much online got before: once it was found empty while others were served, it leads."""
    ledger = PullLedger()
    for lane in [*history, *[Lane.BULK] * 60]:
        ledger, _ = pull(ledger, [flow for flow in FLOWS if flow.lane is lane], budget)

    assert ledger.plan(FLOWS, dict.fromkeys(LANES, 1)).steps[0].flows[0].lane is Lane.ONLINE


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from(FLOWS), max_size=40), st.integers(1, 4))
def test_no_lane_and_no_flow_starves(history: list[Flow], budget: int) -> None:
    """With everything waiting all the time, every flow gets its share, whatever went before.

    A bounded debt is paid first (`test_an_old_debt_is_bounded`), so that the share is counted after a while.
    """
    ledger = PullLedger()
    for flow in history:
        ledger, _ = pull(ledger, [flow], budget)
    for _ in range(150):
        ledger, _ = pull(ledger, FLOWS, budget)
    total: Counter[Flow] = Counter()
    for _ in range(300):
        ledger, taken = pull(ledger, FLOWS, budget)
        total += taken

    weights = sum(LANE_WEIGHTS.values())
    for lane in LANES:
        of_lane = [total[flow] for flow in FLOWS if flow.lane is lane]
        assert sum(of_lane) / total.total() >= 0.5 * LANE_WEIGHTS[lane] / weights
        assert min(of_lane) >= 0.25 * max(of_lane)


def test_a_flow_that_was_not_reached_keeps_its_place() -> None:
    """The step was full before it came to the second flow, which is therefore next."""
    first, second = FLOWS[:2]
    ledger = PullLedger().record(PullStep((first, second), 1), {first: 32})

    assert ledger.plan(FLOWS[:2], {Lane.ONLINE: 1}).steps[0].flows == (second, first)


def test_an_old_debt_is_bounded() -> None:
    """A lane that had no room for hours does not shut out the others for hours afterwards."""
    ledger, online = PullLedger(), FLOWS[0]
    for _ in range(1000):
        ledger = ledger.record(PullStep((online,), 32), {online: 1024})
    pulls = 0
    while ledger.plan(FLOWS, dict.fromkeys(LANES, 64)).steps[0].flows[0].lane is not Lane.ONLINE:
        ledger, _ = pull(ledger, FLOWS, 2)
        pulls += 1

    assert 0 < pulls < 30
