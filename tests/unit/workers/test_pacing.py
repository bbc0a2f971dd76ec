"""When ends are settled and hints are pulled, and what counts as a device that idles beside work."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.jobs.job import Lane
from workers.pacing import LINGER_S, MOST_BYTES, MOST_ROWS, REST_S, Waiting, idle_backlog_s, rest_s

NOW = 100.0


def ended(*lanes: Lane, now: float = NOW, succeeded: bool = True, size: int = 10, items: int = 1) -> Waiting:
    waiting = Waiting()
    for lane in lanes:
        waiting = waiting.joined(now, lane, items=items, size=size, succeeded=succeeded)
    return waiting


def test_nothing_is_waited_for_where_nothing_has_ended() -> None:
    assert Waiting().left_s(NOW, backlog=10, capacity=1_000) is None


def test_a_caller_who_waits_is_answered_at_once_and_takes_the_others_along() -> None:
    assert ended(Lane.BULK, Lane.ONLINE).left_s(NOW, backlog=10, capacity=1_000) == 0.0


def test_bulk_lingers_for_the_next_passes_counted_from_the_first_end() -> None:
    waiting = ended(Lane.BULK).joined(NOW + 0.1, Lane.BULK, items=1, size=1, succeeded=True)

    assert waiting.left_s(NOW + 0.1, backlog=1, capacity=1_000) == pytest.approx(LINGER_S[Lane.BULK] - 0.1)
    assert waiting.left_s(NOW + LINGER_S[Lane.BULK], backlog=1, capacity=1_000) == 0.0


def test_nothing_lingers_once_the_device_has_nothing_more_to_do() -> None:
    assert ended(Lane.BULK, Lane.STANDARD).left_s(NOW, backlog=0, capacity=1_000) == 0.0


def test_what_did_not_succeed_is_told_at_once() -> None:
    assert ended(Lane.BULK, succeeded=False).left_s(NOW, backlog=10, capacity=1_000) == 0.0


@pytest.mark.parametrize(
    "waiting",
    [ended(*[Lane.BULK] * MOST_ROWS), ended(Lane.BULK, size=MOST_BYTES), ended(Lane.BULK, items=8)],
    ids=["rows", "bytes", "room"],
)
def test_what_fills_a_transaction_or_the_window_is_settled(waiting: Waiting) -> None:
    assert waiting.left_s(NOW, backlog=10, capacity=64) == 0.0


@given(st.lists(st.tuples(st.sampled_from(list(Lane)), st.floats(0, 5)), min_size=1, max_size=20))
def test_no_end_waits_longer_than_its_lane_allows(ends: list[tuple[Lane, float]]) -> None:
    waiting = Waiting()
    for lane, after in sorted(ends, key=lambda end: end[1]):
        waiting = waiting.joined(NOW + after, lane, items=0, size=0, succeeded=True)

    assert waiting.until <= min(NOW + after + LINGER_S[lane] for lane, after in ends)


def test_a_worker_rests_only_behind_a_batch_whose_callers_wait() -> None:
    assert rest_s([Lane.BULK, Lane.ONLINE]) == REST_S
    assert rest_s([Lane.BULK, Lane.STANDARD]) == 0.0
    assert rest_s([]) == 0.0


@pytest.mark.parametrize(
    ("enqueued", "seconds"),
    [([3.0, 12.0], 5.0), ([10.0], 5.0), ([12.0], 0.0), ([], 0.0)],
    ids=["work lay there", "it came with the end of the pass", "the device waited for work", "nothing"],
)
def test_a_device_idles_beside_work_only_if_the_work_was_there_before(enqueued: list[float], seconds: float) -> None:
    assert idle_backlog_s(10.0, 15.0, enqueued) == seconds
