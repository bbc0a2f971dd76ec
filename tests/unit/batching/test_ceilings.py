"""Ceilings of memory: what an out-of-memory pass teaches, how a fleet shares it, and how it is forgotten."""

import random

from hypothesis import given
from hypothesis import strategies as st

from batchfleet.batching.ceilings import QUIET_S, UNBOUNDED, Ceiling, Ceilings

lessons = st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 600), st.floats(0, 10 * QUIET_S)), max_size=8)


def taught(passes: list[tuple[int, int, float]]) -> Ceilings:
    ceilings = UNBOUNDED
    for length, rows, at in passes:
        ceilings = ceilings.lowered(length, rows, at)
    return ceilings


def test_nothing_is_bounded_before_memory_ran_out() -> None:
    assert UNBOUNDED.most_rows(1) is None
    assert UNBOUNDED.regrown(1e9) == UNBOUNDED


def test_a_pass_without_memory_halves_what_its_length_and_longer_ones_may_hold() -> None:
    ceilings = UNBOUNDED.lowered(128, 32, at=0.0)

    assert [ceilings.most_rows(length) for length in (64, 127, 128, 512)] == [None, None, 16, 16]


def test_one_row_stays_allowed() -> None:
    assert UNBOUNDED.lowered(64, 1, at=0.0).most_rows(64) == 1


@given(lessons)
def test_a_longer_length_never_holds_more_and_every_lesson_is_heeded(passes: list[tuple[int, int, float]]) -> None:
    ceilings = taught(passes)

    rows = [bound for length in range(1, 5100, 7) if (bound := ceilings.most_rows(length)) is not None]

    assert rows == sorted(rows, reverse=True)
    for length, tried, _ in passes:
        bound = ceilings.most_rows(length)
        assert bound is not None
        assert bound <= max(1, tried // 2)
        assert bound >= 1


@given(lessons, lessons, lessons)
def test_workers_agree_whatever_the_order_they_tell_each_other_in(
    one: list[tuple[int, int, float]], two: list[tuple[int, int, float]], three: list[tuple[int, int, float]]
) -> None:
    a, b, c = taught(one), taught(two), taught(three)

    assert a.merged(b) == b.merged(a)
    assert a.merged(b).merged(c) == a.merged(b.merged(c))
    assert a.merged(a) == a
    for length in (1, 16, 100, 5000):
        bounds = [bound for known in (a, b) if (bound := known.most_rows(length)) is not None]
        assert a.merged(b).most_rows(length) == min(bounds, default=None)


def test_a_ceiling_doubles_after_each_quiet_day_and_is_forgotten_in_the_end() -> None:
    ceilings = UNBOUNDED.lowered(64, 16, at=1000.0)

    assert ceilings.regrown(1000.0 + QUIET_S - 1).most_rows(64) == 8
    assert ceilings.regrown(1000.0 + QUIET_S).most_rows(64) == 16
    assert ceilings.regrown(1000.0 + 3 * QUIET_S).most_rows(64) == 64
    assert ceilings.regrown(1000.0 + 365 * QUIET_S) == UNBOUNDED


def test_growing_twice_is_growing_once() -> None:
    ceilings = UNBOUNDED.lowered(64, 16, at=0.0).lowered(256, 4, at=0.5 * QUIET_S)

    assert ceilings.regrown(1.7 * QUIET_S).regrown(2.6 * QUIET_S) == ceilings.regrown(2.6 * QUIET_S)


def test_a_ceiling_that_was_tried_in_vain_stands_for_another_day() -> None:
    grown = UNBOUNDED.lowered(64, 16, at=0.0).regrown(QUIET_S)

    again = grown.lowered(64, 16, at=QUIET_S + 1)

    assert again.regrown(2 * QUIET_S).most_rows(64) == 8


def test_the_number_of_ceilings_is_bounded() -> None:
    chance = random.Random(1)
    ceilings = UNBOUNDED
    for at in range(300):
        ceilings = ceilings.lowered(chance.randint(1, 8192), chance.randint(1, 64), float(at))

    assert len(ceilings.known) <= 60
    assert list(ceilings.known) == sorted(ceilings.known, key=lambda one: one.length)


@given(
    st.lists(st.builds(Ceiling, st.integers(-9, 9) | st.just(2**62), st.integers(-9, 9) | st.just(2**62), st.floats())),
    st.floats(),
)
def test_no_ceiling_however_wrong_breaks_the_rules(known: list[Ceiling], now: float) -> None:
    ceilings = Ceilings(tuple(known)).merged(UNBOUNDED).regrown(now).lowered(16, 4, now)

    assert all((ceilings.most_rows(length) or 1) >= 1 for length in (1, 64, 4096))
