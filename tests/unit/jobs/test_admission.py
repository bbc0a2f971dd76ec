"""What is let in, and what the refusal says."""

import pytest

from batchfleet.errors import InvalidRequestError, OverloadedError, TooLargeError
from batchfleet.jobs.admission import check_item_count, check_queue
from batchfleet.jobs.job import MAX_ITEMS_PER_JOB


def test_a_queue_takes_work_up_to_its_limit() -> None:
    check_queue(90, 10, 100)

    with pytest.raises(OverloadedError) as refusal:
        check_queue(93, 11, 100)

    assert "queue is full" in str(refusal.value)
    assert "93" not in str(refusal.value), "most of them may be another tenant's"


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
