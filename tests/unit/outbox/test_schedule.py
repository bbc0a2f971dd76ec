"""When deliveries are tried again."""

import pytest

from batchfleet.outbox.schedule import DELAYS_S, LONGEST_ASKED_S, read_retry_after, retry_in_s

MIDDLE = 0.5
NOW = 1_784_194_496.0


def test_the_schedule_is_the_published_one_and_ends() -> None:
    waits = [retry_in_s(attempts, chance=MIDDLE, status=500) for attempts in range(1, 9)]

    assert DELAYS_S[0] == 0.0
    assert waits == [5.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0, 36_000.0, None]


def test_waits_are_spread_around_the_schedule() -> None:
    assert retry_in_s(2, chance=0.0) == pytest.approx(270.0)
    assert retry_in_s(2, chance=0.999_999) == pytest.approx(330.0, abs=0.01)


def test_a_receiver_that_is_gone_is_not_asked_again() -> None:
    assert retry_in_s(1, chance=MIDDLE, status=410) is None


@pytest.mark.parametrize("status", [429, 503])
def test_a_receiver_that_asks_for_patience_gets_it_within_bounds(status: int) -> None:
    assert retry_in_s(1, chance=MIDDLE, status=status, retry_after_s=60.0) == 60.0
    assert retry_in_s(1, chance=MIDDLE, status=status, retry_after_s=1.0) == 5.0
    assert retry_in_s(1, chance=MIDDLE, status=status, retry_after_s=1e9) == LONGEST_ASKED_S
    assert retry_in_s(8, chance=MIDDLE, status=status, retry_after_s=60.0) is None


def test_patience_is_not_asked_for_with_other_statuses() -> None:
    assert retry_in_s(1, chance=MIDDLE, status=500, retry_after_s=60.0) == 5.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120.0),
        (" 0 ", 0.0),
        ("9" * 40, LONGEST_ASKED_S),
        ("Thu, 16 Jul 2026 09:36:26 GMT", 90.0),
        ("Thu, 16 Jul 2026 09:34:55 GMT", 0.0),
        ("Thu, 16 Jul 2026 09:36:26", 90.0),
        ("-5", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
        ("²", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(text: str, seconds: float | None) -> None:
    assert read_retry_after(text, NOW) == seconds
