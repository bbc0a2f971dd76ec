"""What the end of a job owes to others, as pure code: shared by the stores, paid by `batchfleet.outbox`."""

from dataclasses import dataclass

from batchfleet.jobs.job import JobId, LinkFlag
from batchfleet.jobs.states import JobState

WEBHOOK = "webhook"
OUTPUT = "output"
PENDING = "pending"

OWING = int(LinkFlag.OUTPUT | LinkFlag.CALLBACK)
"""A job that has one of these links owes something at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Debt:
    """One row of the outbox, as the end of its job writes it.

    Attributes:
        kind: `webhook` (the job, to its `callback_url`) or `output` (its result or error, to its `output_uri`).
        target: URL or URI that it goes to.
        event: `job.<state>`.
        created_at: When the job ended, in Unix seconds of the database's clock; it is due at once.
        state: `pending` until it is paid or given up.
    """

    job_id: JobId
    kind: str
    tenant: str
    target: str
    event: str
    created_at: float
    state: str = PENDING


def kinds_owed(links: int, state: JobState) -> tuple[str, ...]:
    """Returns which kinds of debt a job with these `LinkFlag`s has in a state; none before it has ended."""
    if not links & OWING or not state.terminal:
        return ()
    kinds = ((LinkFlag.CALLBACK, WEBHOOK), (LinkFlag.OUTPUT, OUTPUT))
    return tuple(kind for flag, kind in kinds if links & flag)


def event_of(state: JobState) -> str:
    """Returns the name of the event that a job has ended so."""
    return f"job.{state.value}"
