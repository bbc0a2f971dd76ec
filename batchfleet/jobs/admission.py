"""Whether a job is let in: pure checks at the edge, before anything is stored."""

from batchfleet.errors import InvalidRequestError, OverloadedError, TooLargeError
from batchfleet.jobs.job import MAX_ITEMS_PER_JOB

MAX_ATTEMPTS = 100
MAX_RUN_TIMEOUT_S = 24 * 3600.0
MAX_TTL_S = 366 * 24 * 3600.0

MIN_RETRY_AFTER_S = 1.0
MAX_RETRY_AFTER_S = 60.0
DRAIN_GUESS_PER_S = 100.0
"""Jobs a second assumed to leave the queue while nothing is known about the fleet's speed."""


def check_queue(queued: int, adding: int, limit: int, *, drained_per_s: float = DRAIN_GUESS_PER_S) -> None:
    """Refuses work that would make the queue longer than its limit.

    Args:
        queued: Jobs queued now.
        adding: Jobs of this request.
        limit: The most that may be queued.
        drained_per_s: Jobs that leave the queue each second, for the advice when to come back.

    Raises:
        OverloadedError: With the seconds after which there should be room.
    """
    excess = queued + adding - limit
    if excess > 0:
        wait_s = excess / drained_per_s if drained_per_s > 0 else MAX_RETRY_AFTER_S
        raise OverloadedError(
            # Not how many are queued: most may be those of other tenants.
            f"the fleet's queue is full: it holds {limit:,} jobs, and {adding:,} more do not fit now",
            retry_after_s=min(MAX_RETRY_AFTER_S, max(MIN_RETRY_AFTER_S, wait_s)),
        )


def check_item_count(count: int, *, field: str = "inputs") -> None:
    """Refuses an empty job and one that should be a scoring run.

    Raises:
        InvalidRequestError: If there is no item.
        TooLargeError: If there are more than `MAX_ITEMS_PER_JOB`.
    """
    if count < 1:
        raise InvalidRequestError("a job needs at least one input", field=field)
    if count > MAX_ITEMS_PER_JOB:
        raise TooLargeError(
            f"a job takes at most {MAX_ITEMS_PER_JOB:,} inputs, not {count:,}: submit several jobs", field=field
        )
