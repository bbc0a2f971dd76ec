"""Whether a job is let in: pure checks at the edge, before anything is stored."""

import math

from batchfleet.errors import InvalidRequestError, OverloadedError, TooLargeError
from batchfleet.jobs.job import MAX_ITEMS_PER_JOB, NewJob

MAX_ATTEMPTS = 100
MAX_RUN_TIMEOUT_S = 24 * 3600.0
MAX_TTL_S = 366 * 24 * 3600.0
MAX_NAME_CHARS = 512
"""Model, version, adapter, tenant and idempotency key are index keys: databases bound their size."""

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
            f"{queued} jobs are queued, and the limit is {limit}",
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
            f"{count} inputs; a job takes at most {MAX_ITEMS_PER_JOB}: submit several jobs", field=field
        )


def check_job(job: NewJob) -> None:
    """Refuses what some database would choke on: a neighbour in the same insert must not pay for it.

    Raises:
        InvalidRequestError: Naming the field.
    """
    check_item_count(job.item_count)
    for field in ("model", "version", "adapter", "tenant", "idempotency_key"):
        text = getattr(job, field)
        if text is not None:
            _check_name(text, field)
    _check_number("ttl_s", job.ttl_s, MAX_TTL_S)
    _check_number("run_timeout_s", job.run_timeout_s, MAX_RUN_TIMEOUT_S)
    _check_number("max_attempts", job.max_attempts, MAX_ATTEMPTS)
    if job.run_at is not None and not math.isfinite(job.run_at):
        raise InvalidRequestError("must be a finite number", field="run_at")


def _check_name(text: str, field: str) -> None:
    if len(text) > MAX_NAME_CHARS:
        raise InvalidRequestError(f"longer than {MAX_NAME_CHARS} characters", field=field)
    if "\x00" in text:
        raise InvalidRequestError("must not contain NUL", field=field)
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise InvalidRequestError("must not contain half a surrogate pair", field=field) from exc


def _check_number(field: str, value: float | None, most: float) -> None:
    # Written so that NaN fails.
    if value is not None and not 0 < value <= most:
        raise InvalidRequestError(f"must be above 0 and at most {most:g}", field=field)
