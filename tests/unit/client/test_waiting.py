"""Waiting for many jobs: few look-ups, the right ones, and no blind sleep."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.client.errors import WaitTimeoutError
from batchfleet.client.waiting import LONGEST_POLL_S, LOOKUP_LIMIT, ended_in_turn, pause, wait_for_all


class Fleet:
    """Ends jobs in a given order at a given pace, on a clock of its own."""

    def __init__(self, order: Sequence[str], per_s: float) -> None:
        self.rank = {job_id: index for index, job_id in enumerate(order)}
        self.per_s = per_s
        self.now = 0.0
        self.look_ups = 0
        self.ids_asked = 0
        self.polls = 0

    def look_up(self, ids: Sequence[str]) -> dict[str, str]:
        assert 0 < len(ids) <= LOOKUP_LIMIT
        self.look_ups += 1
        self.ids_asked += len(ids)
        self.now += 0.001
        return {job_id: "succeeded" for job_id in ids if self.rank[job_id] < self.now * self.per_s}

    def wait_for(self, job_id: str, wait_s: float) -> str | None:
        assert wait_s > 0
        self.polls += 1
        self.now += min(wait_s, max(0.0, (self.rank[job_id] + 1) / self.per_s - self.now))
        return "succeeded" if self.rank[job_id] < self.now * self.per_s else None


def wait(fleet: Fleet, ids: Sequence[str], timeout_s: float | None = None) -> dict[str, str]:
    return wait_for_all(
        ids,
        look_up=fleet.look_up,
        wait_for=fleet.wait_for,
        timeout_s=timeout_s,
        progress=lambda _: None,
        clock=lambda: fleet.now,
    )


def test_ten_thousand_jobs_cost_few_look_ups() -> None:
    ids = [f"job_{i}" for i in range(10_000)]
    fleet = Fleet(ids, per_s=500.0)

    assert list(wait(fleet, ids)) == ids

    assert fleet.ids_asked < 4 * len(ids)
    assert fleet.now < 20.0 * 1.05


@given(order=st.permutations(range(40)), per_s=st.floats(1.0, 10_000.0))
def test_every_job_is_found_whatever_the_order(order: list[int], per_s: float) -> None:
    ids = [f"job_{i}" for i in range(40)]

    found = wait(Fleet([f"job_{i}" for i in order], per_s), ids)

    assert list(found) == ids


def test_the_time_is_bounded_and_the_pending_are_named() -> None:
    ids = ["job_a", "job_b"]

    with pytest.raises(WaitTimeoutError) as caught:
        wait(Fleet(ids, per_s=1e-9), ids, timeout_s=3.0)

    assert caught.value.pending == ("job_b",)


def in_turn(
    fleet: Fleet, ids: Sequence[str], timeout_s: float | None = None, found: list[str] | None = None
) -> list[str]:
    found = [] if found is None else found
    for some in ended_in_turn(
        ids, look_up=fleet.look_up, wait_for=fleet.wait_for, timeout_s=timeout_s, clock=lambda: fleet.now
    ):
        found += some
    return found


@given(order=st.permutations(range(40)), per_s=st.floats(1.0, 10_000.0))
def test_each_job_comes_once(order: list[int], per_s: float) -> None:
    ids = [f"job_{i}" for i in range(40)]

    assert sorted(in_turn(Fleet([f"job_{i}" for i in order], per_s), ids + ids[:3])) == sorted(ids)


def test_jobs_that_stand_still_hide_no_others() -> None:
    stuck, quick = [f"stuck_{i}" for i in range(2 * LOOKUP_LIMIT)], [f"quick_{i}" for i in range(10)]
    fleet = Fleet([*quick, *stuck], per_s=1e-6)
    fleet.rank = dict.fromkeys(quick, -1) | dict.fromkeys(stuck, 1)
    found: list[str] = []

    with pytest.raises(WaitTimeoutError) as caught:
        in_turn(fleet, stuck + quick, timeout_s=60.0, found=found)

    assert found == quick
    assert caught.value.pending == tuple(stuck)


def test_the_last_job_is_polled_long_and_not_looked_up_again() -> None:
    fleet = Fleet(["job_0", "job_a"], per_s=0.001)

    assert in_turn(fleet, ["job_a"]) == ["job_a"]

    assert fleet.polls == pytest.approx(1000 / LONGEST_POLL_S, abs=2)
    assert fleet.look_ups == 1


def test_an_hour_in_which_nothing_ends_is_not_asked_about_five_times_a_second() -> None:
    fleet = Fleet(["job_a", "job_b"], per_s=1e-9)

    with pytest.raises(WaitTimeoutError):
        in_turn(fleet, ["job_a", "job_b"], timeout_s=3600.0)

    assert fleet.look_ups < 2_000


def test_no_jobs_no_questions() -> None:
    fleet = Fleet([], per_s=1.0)

    assert wait(fleet, []) == {}
    assert fleet.look_ups == 0


def test_the_pause_follows_the_pace_within_bounds() -> None:
    assert pause(100, ended=0, elapsed_s=1.0) == pytest.approx(0.2)
    assert pause(100, ended=200, elapsed_s=1.0) == pytest.approx(0.5)
    assert pause(1, ended=10_000, elapsed_s=1.0) == pytest.approx(0.02)
    assert pause(1_000, ended=1, elapsed_s=10.0) == 2.0
