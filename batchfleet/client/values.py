"""What the client sends and gets back, as plain frozen values."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TypeAlias, TypedDict

import msgspec
import numpy as np
from numpy.typing import NDArray

PENDING_STATUSES = frozenset({"queued", "running"})

LaneName: TypeAlias = Literal["online", "standard", "bulk"]
OnItemErrorName: TypeAlias = Literal["fail", "partial"]


class JobOptions(TypedDict, total=False):
    """The members of `JobRequest` besides model and inputs, as `Client.submit` takes them."""

    version: str | None
    adapter: str | None
    parameters: Mapping[str, Any] | None
    lane: LaneName | None
    ttl_s: float | None
    run_at: datetime | None
    run_timeout_s: float | None
    max_attempts: int | None
    on_item_error: OnItemErrorName | None
    metadata: Mapping[str, Any] | None
    input_uri: str | None
    output_uri: str | None
    callback_url: str | None
    idempotency_key: str | None


class JobRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as it is asked for. Fields left at their default are not sent.

    Attributes:
        inputs: 1 to 1,024 items: texts, or what else the model takes (NumPy arrays are sent as lists of numbers).
        version: Of the model; default: its newest.
        parameters: The task's parameters, for example `{"normalize": false}`.
        lane: `online`, `standard` or `bulk`.
        ttl_s: Seconds within which the job must start.
        run_at: Time, with its time zone, before which it must not start.
        run_timeout_s: Seconds for which one run may take.
        on_item_error: `fail` or `partial`.
        metadata: Shown with the job.
        input_uri: `s3://bucket/key` of an object that holds the inputs, in place of `inputs`.
        output_uri: `s3://bucket/key` that the result is written to as well.
        callback_url: Who is told when the job has ended.
        idempotency_key: A second submission with the same key is answered with the first job.

    Raises:
        TypeError: If `inputs` is a single text: its characters would be the items.
        ValueError: If not exactly one of `inputs` and `input_uri` is stated, or `run_at` has no time zone.
    """

    model: str
    inputs: list[Any] | None = None
    version: str | None = None
    adapter: str | None = None
    parameters: Mapping[str, Any] | None = None
    lane: LaneName | None = None
    ttl_s: float | None = None
    run_at: datetime | None = None
    run_timeout_s: float | None = None
    max_attempts: int | None = None
    on_item_error: OnItemErrorName | None = None
    metadata: Mapping[str, Any] | None = None
    input_uri: str | None = None
    output_uri: str | None = None
    callback_url: str | None = None
    idempotency_key: str | None = None

    def __post_init__(self) -> None:
        check_inputs(self.inputs)
        if (self.inputs is None) == (self.input_uri is None):
            raise ValueError("state either inputs or input_uri")
        if self.run_at is not None and self.run_at.tzinfo is None:
            raise ValueError("run_at has no time zone: it could mean any of 24 hours")


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
        result_gone: Whether it succeeded and its result was removed since.
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
    input_uri: str | None = None
    output_uri: str | None = None
    callback_url: str | None = None
    error: JobFailure | None = None
    retry_of: str | None = None
    notice: str | None = None
    provenance: dict[str, Any] | None = None
    result_url: str | None = None
    result_gone: bool = False
    result: Any = None

    @property
    def ended(self) -> bool:
        """Whether nothing can change any more."""
        return self.status not in PENDING_STATUSES

    @property
    def succeeded(self) -> bool:
        """Whether it has a result."""
        return self.status == "succeeded"


class ItemError(msgspec.Struct, frozen=True):
    """Why one input has no value; `index` counts from 0."""

    index: int
    code: str
    message: str


class ItemResults(msgspec.Struct, frozen=True):
    """A result input by input: what `on_item_error: partial` gives.

    Attributes:
        values: One value an input, in order: a NumPy array, or what else the task gives; None where there is none.
        errors: Why those have none.
    """

    values: list[Any]
    errors: list[ItemError] = []

    def array(self) -> NDArray[Any]:
        """Returns the values as one array with a row an input.

        Raises:
            ValueError: If an input has no value, or the values are not arrays of one shape and type.
        """
        if self.errors:
            raise ValueError(f"{len(self.errors)} input(s) have no value")
        kinds = {(value.dtype, value.shape) for value in self.values if isinstance(value, np.ndarray)}
        if len(kinds) != 1 or not all(isinstance(value, np.ndarray) for value in self.values):
            raise ValueError("the values are not arrays of one shape and type")
        return np.stack(self.values)


class Submission(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one job of a bulk submission, in the order of the call.

    Attributes:
        id: The job's id; None where it was refused.
        replayed: Whether its idempotency key was known: this is the first job.
        error: Why it was refused.
    """

    index: int
    id: str | None = None
    status: str | None = None
    replayed: bool = False
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
