"""How a job ends: its row, and the bytes of its result. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from batchfleet.jobs.job import JobError, Settlement
from batchfleet.jobs.retry import after_error
from batchfleet.jobs.states import JobState
from batchfleet.results.codec import encode_tensors
from workers.active import ActiveJob


@dataclass(frozen=True, slots=True)
class Ended:
    """One job that ended here, with the bytes of its result."""

    job: ActiveJob
    row: Settlement
    data: bytes = b""


def succeeded(job: ActiveJob, provenance: Mapping[str, object]) -> Ended:
    """Returns the end of a job whose items all have an outcome or, where it may be partial, a fault."""
    rows: list[NDArray[Any] | None] = [job.outcomes.get(index) for index in range(job.claimed.item_count)]  # type: ignore[misc]
    form, data = encode_tensors([None if row is None else np.asarray(row) for row in rows], list(job.faults.values()))
    row = Settlement(
        id=job.id,
        epoch=job.claimed.epoch,
        state=JobState.SUCCEEDED,
        format=form,
        provenance=_provenance(provenance, job),
    )
    return Ended(job, row, data)


def failed(job: ActiveJob, error: JobError, provenance: Mapping[str, object], *, jitter: float) -> Ended:
    """Returns the end of a job that failed by an error of its own, which may be another try.

    Args:
        job: The job.
        error: Why it failed.
        provenance: How it was run, if it was.
        jitter: A number in [0, 1), for the pause before another try.
    """
    claimed = job.claimed
    decision = after_error(error.code, attempts=claimed.attempts + 1, max_attempts=claimed.max_attempts, jitter=jitter)
    row = Settlement(
        id=job.id,
        epoch=claimed.epoch,
        state=JobState.QUEUED if decision.retry else JobState.FAILED,
        error=error,
        provenance=_provenance(provenance, job) if provenance else None,
        retry_in_s=decision.delay_s,
    )
    return Ended(job, row)


def expired(job: ActiveJob) -> Ended:
    """Returns the end of a job whose time to live was over before its pass."""
    return Ended(job, Settlement(id=job.id, epoch=job.claimed.epoch, state=JobState.EXPIRED))


def _provenance(provenance: Mapping[str, object], job: ActiveJob) -> str:
    return msgspec.json.encode({**provenance, "attempt": job.claimed.attempts + 1}).decode()
