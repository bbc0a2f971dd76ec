"""What the stages tell the settler."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from batchfleet.inference.executor import Outcome
from batchfleet.jobs.job import JobError, Settlement
from workers.active import ActiveJob


@dataclass(frozen=True, slots=True)
class PassDone:
    """Outcomes of one batch, and how it ran.

    Attributes:
        outcomes: (job, index of the item in the job, output or fault).
        provenance: How the items were run, for the result's provenance.
    """

    outcomes: tuple[tuple[ActiveJob, int, Outcome], ...]
    provenance: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ItemsFailed:
    """Items that failed before any pass, by index."""

    job: ActiveJob
    faults: Mapping[int, JobError]


@dataclass(frozen=True, slots=True)
class JobFailed:
    """A whole job that failed by an error of its own."""

    job: ActiveJob
    error: JobError


@dataclass(frozen=True, slots=True)
class JobExpired:
    """A claimed job whose time to live ended before its pass."""

    job: ActiveJob


@dataclass(frozen=True, slots=True)
class ResultStored:
    """A job whose result is in the blob store now, under the key that its row names."""

    job: ActiveJob
    row: Settlement


@dataclass(frozen=True, slots=True)
class JobReturned:
    """A claimed job that goes back free of charge, for another run: nothing of it is at fault.

    Attributes:
        delay_s: Seconds before it may be claimed again.
    """

    job: ActiveJob
    delay_s: float = 0.0


SettleMessage: TypeAlias = PassDone | ItemsFailed | JobFailed | JobExpired | ResultStored | JobReturned
