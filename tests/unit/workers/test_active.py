"""What a worker holds, and the room that it leaves: a count that must never leak."""

from batchfleet.jobs.job import ClaimedJob, Lane, OnItemError, new_job_id
from workers.active import ActiveJobs


def claimed(job_id: str, epoch: int = 1, *, items: int = 10, run_timeout_s: float = 300.0) -> ClaimedJob:
    return ClaimedJob(
        id=job_id,
        epoch=epoch,
        model="m",
        version="1",
        adapter="",
        tenant="default",
        lane=Lane.BULK,
        inputs=b"[]",
        item_count=items,
        parameters=b"{}",
        on_item_error=OnItemError.FAIL,
        attempts=0,
        max_attempts=3,
        crashes=0,
        suspect=False,
        age_s=2.0,
        ttl_left_s=5.0,
        run_timeout_s=run_timeout_s,
    )


def test_a_job_that_comes_again_while_it_is_held_takes_its_room_once() -> None:
    """It was rescued from us (its run took too long), and we claimed it anew."""
    active, job_id = ActiveJobs(), new_job_id()
    first = active.add(claimed(job_id, 1), now=100.0)
    second = active.add(claimed(job_id, 3), now=101.0)

    assert active.items == 10
    assert active.remove(first) is False
    assert active.remove(second) is True
    assert (active.items, len(active)) == (0, 0)
    assert active.items_by_lane[Lane.BULK] == 0


def test_freed_room_is_told() -> None:
    active, told = ActiveJobs(), []
    active.when_freed(lambda: told.append(active.items))
    job = active.add(claimed(new_job_id()), now=100.0)

    active.remove(job)
    active.remove(job)

    assert told == [0]


def test_ages_and_remainders_are_anchored_to_this_machines_clock() -> None:
    active = ActiveJobs()
    job = active.add(claimed(new_job_id(), run_timeout_s=7.0), now=100.0)

    assert (job.arrived, job.deadline, job.run_until) == (98.0, 105.0, 107.0)
    assert active.overdue(106.9) == []
    assert active.overdue(107.0) == [job]
