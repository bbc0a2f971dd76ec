"""What is let in, and what the refusal says."""

from typing import Any

import pytest

from batchfleet.errors import InvalidRequestError, OverloadedError, TooLargeError
from batchfleet.jobs.admission import check_item_count, check_job, check_queue
from batchfleet.jobs.job import MAX_ITEMS_PER_JOB
from tests.support.stores import new_job


def test_a_queue_takes_work_up_to_its_limit() -> None:
    check_queue(90, 10, 100)

    with pytest.raises(OverloadedError):
        check_queue(90, 11, 100)


@pytest.mark.parametrize(
    ("excess", "per_s", "retry_after_s"),
    [(1, 100.0, 1.0), (500, 100.0, 5.0), (10**6, 100.0, 60.0), (5, 0.0, 60.0)],
)
def test_the_advice_follows_the_excess(excess: int, per_s: float, retry_after_s: float) -> None:
    with pytest.raises(OverloadedError) as refusal:
        check_queue(100, excess, 100, drained_per_s=per_s)

    assert refusal.value.retry_after_s == retry_after_s


def test_a_job_has_one_to_many_items() -> None:
    check_item_count(1)
    check_item_count(MAX_ITEMS_PER_JOB)

    with pytest.raises(InvalidRequestError) as none:
        check_item_count(0)
    with pytest.raises(TooLargeError) as many:
        check_item_count(MAX_ITEMS_PER_JOB + 1)
    assert (none.value.field, many.value.field) == ("inputs", "inputs")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", "a\x00b"),
        ("tenant", "half \ud83d"),
        ("idempotency_key", "k" * 513),
        ("adapter", "\x00"),
        ("ttl_s", 0.0),
        ("ttl_s", float("nan")),
        ("ttl_s", float("inf")),
        ("run_timeout_s", -1.0),
        ("run_timeout_s", 1e9),
        ("max_attempts", 0),
        ("max_attempts", 2**40),
        ("run_at", float("inf")),
    ],
)
def test_what_a_database_would_choke_on_is_refused_by_name(field: str, value: Any) -> None:
    """A neighbour in the same insert must not pay for it."""
    with pytest.raises(InvalidRequestError) as refusal:
        check_job(new_job(**{field: value}))

    assert refusal.value.field == field


def test_an_ordinary_job_passes() -> None:
    check_job(new_job(idempotency_key="ключ 🚀", ttl_s=5.0, run_at=1e9))
