"""The states of a job and the arrows between them, as pure code.

::

    queued ──claim──▶ running ──settle──▶ succeeded | failed
       │                 │
       │                 ├──▶ cancelled | expired
       │                 └──rescue, retry, hand-back──▶ queued
       ├──▶ cancelled | expired
       └──▶ failed        (model gone, attempts or crashes used up)

A change applies only from the state (and epoch) it expects. Terminal states never change: a dead letter is
requeued as a new job.
"""

from enum import StrEnum


class JobState(StrEnum):
    """Where a job stands."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def terminal(self) -> bool:
        """Whether nothing can change any more."""
        return self in TERMINAL


TERMINAL = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED})

TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.RUNNING, JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED}),
    JobState.RUNNING: frozenset(
        {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED, JobState.QUEUED}
    ),
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
    JobState.EXPIRED: frozenset(),
}

SETTLED_FROM_RUNNING = TRANSITIONS[JobState.RUNNING]
"""What a worker may settle a claimed job as (`queued` is a retry)."""


class IllegalTransitionError(ValueError):
    """A state change that the table does not have: a programming error, never a user's."""


def can_change(current: JobState, new: JobState) -> bool:
    """Returns whether the table has an arrow from `current` to `new`."""
    return new in TRANSITIONS[current]


def check_change(current: JobState, new: JobState) -> None:
    """Lets a legal change pass.

    Raises:
        IllegalTransitionError: If the table has no such arrow.
    """
    if not can_change(current, new):
        raise IllegalTransitionError(f"a job cannot change from {current} to {new}")
