"""The fair order: nothing is lost, everybody gets a share, and nobody waits for ever."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.jobs.fairness import AGEING_S, MAX_WEIGHT, WEIGHTS, Candidate, fair_order, weight_of
from batchfleet.jobs.job import Lane


def candidate(number: int, lane: Lane = Lane.STANDARD, tenant: str = "a", **changes: float) -> Candidate:
    items = int(changes.get("items", 1))
    return Candidate(f"{number:032x}", lane, "m", tenant, items, 10, changes.get("age", 0.0))


def many(count: int, lane: Lane = Lane.STANDARD, tenant: str = "a", **changes: float) -> list[Candidate]:
    start = random.Random(f"{lane}{tenant}").randrange(2**100)
    return [candidate(start + number, lane, tenant, **changes) for number in range(count)]


candidates = st.lists(
    st.builds(
        Candidate,
        id=st.uuids().map(lambda value: value.hex),
        lane=st.sampled_from(Lane),
        model=st.sampled_from(["m", "n"]),
        tenant=st.sampled_from(["a", "b", "c"]),
        item_count=st.integers(1, 1024),
        input_bytes=st.integers(0, 10**6),
        age_s=st.floats(0, 10**6),
    ),
    unique_by=lambda job: job.id,
    max_size=60,
)


@given(candidates)
def test_nothing_is_lost_or_doubled(jobs: list[Candidate]) -> None:
    assert sorted(job.id for job in fair_order(jobs)) == sorted(job.id for job in jobs)


@given(candidates, st.randoms())
def test_each_flow_keeps_its_order(jobs: list[Candidate], chance: random.Random) -> None:
    ordered = fair_order(jobs, phase=chance.random)

    for flow in {(job.lane, job.model, job.tenant) for job in jobs}:
        mine = [job for job in jobs if (job.lane, job.model, job.tenant) == flow]
        assert [job for job in ordered if (job.lane, job.model, job.tenant) == flow] == mine


@given(candidates, st.integers(0, 70))
def test_a_limit_takes_the_head_of_the_order(jobs: list[Candidate], limit: int) -> None:
    assert fair_order(jobs, limit=limit) == fair_order(jobs)[:limit]


@given(candidates, st.integers(1, 5000))
def test_items_fit_or_there_is_one_job(jobs: list[Candidate], max_items: int) -> None:
    taken = fair_order(jobs, max_items=max_items)

    assert taken == fair_order(jobs)[: len(taken)]
    assert sum(job.item_count for job in taken) <= max_items or len(taken) == 1
    assert bool(taken) == bool(jobs)


@given(st.integers(1, 2000), st.integers(1, 20))
def test_a_small_tenant_waits_a_bounded_time_behind_a_big_one(big: int, small: int) -> None:
    """Case Q18: the place of B's jobs depends on how many B has, never on how many A has."""
    order = fair_order(many(big, tenant="a") + many(small, tenant="b"))

    last = max(place for place, job in enumerate(order) if job.tenant == "b")
    assert last < 2 * small + 1


@given(st.integers(1, 200), st.integers(1, 30))
def test_every_flow_is_served_in_its_first_round(flows: int, rounds: int) -> None:
    jobs = [job for flow in range(flows) for job in many(rounds, tenant=f"t{flow}")]

    first = fair_order(jobs, limit=flows)

    assert len({job.tenant for job in first}) == flows


def test_lanes_share_by_weight() -> None:
    jobs = [job for lane in Lane for job in many(400, lane)]

    shares = Counter(job.lane for job in fair_order(jobs, limit=210))

    assert shares == {Lane.ONLINE: 160, Lane.STANDARD: 40, Lane.BULK: 10}


def test_shares_are_counted_in_items() -> None:
    jobs = many(200, tenant="a", items=10) + many(2000, tenant="b")

    taken = fair_order(jobs, max_items=400)

    items = Counter[str]()
    for job in taken:
        items[job.tenant] += job.item_count
    assert items["a"] == pytest.approx(200, abs=10)


def test_waiting_makes_more_urgent_up_to_the_most_urgent_lane() -> None:
    """Case B13 and its opposite: neither lane shuts the other out, however old its backlog is."""
    fresh = many(200, Lane.ONLINE)
    old = many(200, Lane.BULK, age=10 * 24 * 3600.0)

    shares = Counter(job.lane for job in fair_order(fresh + old, limit=100))

    assert shares == {Lane.ONLINE: 50, Lane.BULK: 50}


@given(st.sampled_from(Lane), st.floats(0, 1e9))
def test_weights_grow_with_age_and_are_bounded(lane: Lane, age: float) -> None:
    assert WEIGHTS[lane] <= weight_of(lane, age) <= MAX_WEIGHT
    assert weight_of(lane, -1.0) == WEIGHTS[lane]
    assert weight_of(Lane.BULK, AGEING_S) == 2 * WEIGHTS[Lane.BULK]


def test_choices_of_one_share_by_weight_in_the_long_run() -> None:
    """A worker that takes one job at a time must not serve the heaviest flow alone."""
    chance = random.Random(7)
    jobs = many(1, Lane.ONLINE) + many(1, Lane.BULK)

    picks = Counter(fair_order(jobs, limit=1, phase=chance.random)[0].lane for _ in range(4000))

    # Uniform phases: the heavier comes first unless the lighter starts in its first sixteenth, half the time.
    assert 4000 / 64 < picks[Lane.BULK] < 4000 / 16
