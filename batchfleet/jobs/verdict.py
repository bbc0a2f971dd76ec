"""What becomes of a running job: what its owner may say, and what is decided when its owner cannot. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from batchfleet.jobs.job import JobError, JobErrorCode, JobId, Settlement
from batchfleet.jobs.retry import after_crash, after_error
from batchfleet.jobs.states import SETTLED_FROM_RUNNING, JobState


@dataclass(frozen=True, slots=True)
class RunningJob:
    """What a verdict depends on."""

    id: JobId
    epoch: int
    attempts: int
    max_attempts: int
    crashes: int
    suspect: bool
    expires_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A job's next state and counters.

    Attributes:
        epoch: The epoch that the verdict is about; it applies to no other.
        delay_s: For `queued`: how long it waits before it may start again.
        error: The new latest reason; None leaves the one before.
    """

    id: JobId
    epoch: int
    state: JobState
    attempts: int
    crashes: int
    suspect: bool
    delay_s: float = 0.0
    error: JobError | None = None


def check_settlements(rows: Sequence[Settlement], block: bytes) -> None:
    """Refuses what no worker may ask for, before anything is written.

    Raises:
        ValueError: If a state cannot be reached from `running`, or a result lies outside the block.
    """
    size = len(block)
    for row in rows:
        if row.state not in SETTLED_FROM_RUNNING:
            raise ValueError(f"a running job cannot be settled as {row.state}")
        if row.offset < 0 or row.length < 0 or row.offset + row.length > size:
            raise ValueError(f"result of {row.id} lies outside the block of {size} bytes")


def after_death(job: RunningJob, now: float, *, in_pass: bool | None = None) -> Verdict:
    """Decides about a job of a dead worker; see `retry.after_crash`. One whose time is over expires."""
    decision = after_crash(crashes=job.crashes, suspect=job.suspect, in_pass=in_pass)
    error = None
    if decision.fail:
        message = f"{decision.crashes} workers died while they ran this job, the last one while it ran alone"
        error = JobError(JobErrorCode.WORKER_CRASHED, message)
    return Verdict(
        id=job.id,
        epoch=job.epoch,
        state=JobState.FAILED if decision.fail else _queued_or_expired(job, now),
        attempts=job.attempts,
        crashes=decision.crashes,
        suspect=decision.suspect,
        error=error,
    )


def after_timeout(job: RunningJob, now: float, jitter: float) -> Verdict:
    """Decides about a job that ran past its timeout under a live worker; see `retry.after_error`."""
    attempts = job.attempts + 1
    decision = after_error(JobErrorCode.RUN_TIMEOUT, attempts=attempts, max_attempts=job.max_attempts, jitter=jitter)
    state = _queued_or_expired(job, now) if decision.retry else JobState.FAILED
    return Verdict(
        id=job.id,
        epoch=job.epoch,
        state=state,
        attempts=attempts,
        crashes=job.crashes,
        suspect=job.suspect,
        delay_s=decision.delay_s if state is JobState.QUEUED else 0.0,
        error=JobError(JobErrorCode.RUN_TIMEOUT, "the run took longer than the job's run timeout"),
    )


def _queued_or_expired(job: RunningJob, now: float) -> JobState:
    if job.expires_at is not None and job.expires_at <= now:
        return JobState.EXPIRED
    return JobState.QUEUED
