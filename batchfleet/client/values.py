"""What the client sends and gets back, as plain frozen values."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

PENDING_STATUSES = frozenset({"queued", "running"})


class JobRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as it is asked for. Fields left at their default are not sent.

    Attributes:
        inputs: 1 to 1,024 items: texts, or what else the model takes.
        parameters: The task's parameters, for example `{"normalize": false}`.
        lane: `online`, `standard` or `bulk`.
        ttl_s: Seconds within which the job must start.
        run_at: Time, with its time zone, before which it must not start.
        on_item_error: `fail` or `partial`.
        idempotency_key: A second submission with the same key is answered with the first job.

    Raises:
        TypeError: If `inputs` is a single text: its characters would be the items.
    """

    model: str
    inputs: list[Any]
    version: str | None = None
    parameters: dict[str, Any] | None = None
    lane: str | None = None
    ttl_s: float | None = None
    run_at: datetime | None = None
    run_timeout_s: float | None = None
    max_attempts: int | None = None
    on_item_error: str | None = None
    metadata: dict[str, Any] | None = None
    idempotency_key: str | None = None

    def __post_init__(self) -> None:
        check_inputs(self.inputs)


def check_inputs(inputs: object) -> None:
    """Lets lists of items pass.

    Raises:
        TypeError: If it is a single text: its characters would be the items.
    """
    if isinstance(inputs, str | bytes | bytearray | Mapping):
        raise TypeError(f"inputs must be a list of items, not a single {type(inputs).__name__}: write [item]")


class JobFailure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a job, or one item of it, has no result."""

    code: str
    message: str
    item: int | None = None
    field: str | None = None


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as the fleet shows it. Members that do not apply are at their default; unknown ones are ignored.

    Attributes:
        result: The result as JSON, where it is small enough to be shown with the job.
        notice: What the fleet wants known, for example that no live worker serves the model.
        provenance: How the result came about: digest, precision, runtime, batch.
    """

    id: str
    status: str
    model: str = ""
    version: str = ""
    adapter: str | None = None
    lane: str = ""
    item_count: int | None = None
    attempts: int | None = None
    crashes: int | None = None
    max_attempts: int | None = None
    submitted_at: datetime | None = None
    run_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    expires_at: datetime | None = None
    metadata: Any = None
    error: JobFailure | None = None
    retry_of: str | None = None
    notice: str | None = None
    provenance: dict[str, Any] | None = None
    result_url: str | None = None
    result: Any = None

    @property
    def ended(self) -> bool:
        """Whether nothing can change any more."""
        return self.status not in PENDING_STATUSES


class Submission(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one job of a bulk submission, in the order of the call.

    Attributes:
        id: The job's id; None where it was refused.
        error: Why it was refused.
    """

    index: int
    id: str | None = None
    status: str | None = None
    error: JobFailure | None = None


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A model that the fleet serves.

    Attributes:
        version: The version that a submission gets by default.
        live_workers: How many workers serve it just now; None where that is not known.
    """

    id: str
    version: str | None = None
    versions: list[str] = []
    task: str = ""
    live_workers: int | None = None


class SubmissionList(msgspec.Struct, frozen=True):
    """The answer to a bulk submission."""

    jobs: list[Submission]


class JobList(msgspec.Struct, frozen=True):
    """A look-up of jobs."""

    jobs: list[Job]


class JobPage(msgspec.Struct, frozen=True):
    """A page of a listing.

    Attributes:
        next: The `after` of the next page; None on the last one.
    """

    jobs: list[Job]
    next: str | None = None


class JobStatus(msgspec.Struct, frozen=True):
    """A job reduced to what polling needs: nothing else is decoded."""

    id: str
    status: str


class JobStatusList(msgspec.Struct, frozen=True):
    """A look-up of which only the states matter."""

    jobs: list[JobStatus]


class ModelList(msgspec.Struct, frozen=True):
    """The answer of `/v1/models`."""

    data: list[Model]
