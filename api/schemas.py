"""What clients may say and what they are told, as msgspec structures: decoding them is the validation of form.

Unknown members are refused by name. What needs a model or the settings is checked in `newjobs`.
"""

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from api.problems import JobFailure
from api.wording import rule
from batchfleet.jobs.admission import MAX_ATTEMPTS, MAX_RUN_TIMEOUT_S, MAX_TTL_S
from batchfleet.jobs.job import Lane, OnItemError

MAX_LOOKUP_IDS = 1_000

NAME_PATTERN = "^[A-Za-z0-9._-]+$"
JOB_ID_PATTERN = "^job_[0-9a-f]{32}$"

Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=64,
        pattern=r"^[A-Za-z0-9._-]+\Z",
        extra=rule("must be 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'"),
    ),
]
Key = Annotated[
    str,
    Meta(min_length=1, max_length=255, pattern=r"^[ -~]+\Z", extra=rule("must be 1 to 255 printable ASCII characters")),
]
_OBJECT_PATTERN = (
    r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/"
    r"(?!(.*/)?\.{1,2}(/|$))"  # no `.` or `..` as a segment
    r"[!-~]{0,1023}[!-.0-~]$"
)
"""What a location looks like where it is plain ASCII; `batchfleet.objects.uri` is who decides."""

ObjectLocation = Annotated[str, Meta(min_length=1, max_length=1093, extra_json_schema={"pattern": _OBJECT_PATTERN})]
Url = Annotated[str, Meta(min_length=1, max_length=2048, extra_json_schema={"format": "uri"})]
Moment = Annotated[datetime, Meta(tz=True)]
TimeToLive = Annotated[float, Meta(gt=0, le=MAX_TTL_S)]
RunTimeout = Annotated[float, Meta(gt=0, le=MAX_RUN_TIMEOUT_S)]
# A number in which JSON's `3.0` is the same as its `3`.
Attempts = Annotated[
    float,
    Meta(
        ge=1,
        le=MAX_ATTEMPTS,
        multiple_of=1,
        extra=rule(f"must be a whole number from 1 to {MAX_ATTEMPTS}"),
        extra_json_schema={"type": "integer"},
    ),
]
JobIdText = Annotated[str, Meta(extra_json_schema={"pattern": JOB_ID_PATTERN})]
Included = Annotated[str, Meta(extra_json_schema={"enum": ["result"]})]


def _says(meaning: str) -> Meta:
    """States what a member means: `/openapi.json` and `/docs` show it."""
    return Meta(description=meaning)


class JobBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    """Body of `POST /v1/jobs`."""

    model: Annotated[Name, _says("Name of a model.")]
    # One of `inputs` and `input_uri` is required: said by `newjobs`.
    inputs: Annotated[
        Annotated[list[Any], Meta(extra_json_schema={"minItems": 1})] | UnsetType,
        _says(
            "1 to 1,024 inputs, each what the model's task takes (`embed`: a text, or an object with `text`). "
            "Required, unless there is an `input_uri`."
        ),
    ] = UNSET
    version: Annotated[Name | None, _says("Version of the model; default: the newest. It is pinned now.")] = None
    parameters: Annotated[dict[str, Any] | None, _says("What the task can be told (`embed`: `normalize`).")] = None
    lane: Annotated[
        Lane | None, _says("Service class; default: `online` with `wait`, `bulk` in bulk, else `standard`.")
    ] = None
    run_at: Annotated[
        Moment | None, _says("Time, with its zone, before which it must not start; at most 366 days ahead.")
    ] = None
    ttl_s: Annotated[
        TimeToLive | None, _says("Seconds from submission within which it must start; it is `expired` else.")
    ] = None
    on_item_error: Annotated[
        OnItemError, _says("`fail`: one bad input fails the job. `partial`: the result has values and errors by index.")
    ] = OnItemError.FAIL
    metadata: Annotated[dict[str, Any] | None, _says("Object of at most 16 KiB, shown with the job.")] = None
    run_timeout_s: Annotated[RunTimeout | None, _says("Seconds for which one run may take.")] = None
    max_attempts: Annotated[
        Attempts | None, _says("Runs that may end in an error of the job's own before it fails.")
    ] = None
    # Part of the contract, but not built yet: refused by name, never ignored.
    adapter: Annotated[
        Annotated[str, Meta(extra_json_schema={"maxLength": 0})] | None,
        _says("Not supported by this version: refused, never ignored."),
    ] = None
    input_uri: Annotated[
        ObjectLocation | None, _says("`s3://bucket/key` of an object that holds the inputs, instead of `inputs`.")
    ] = None
    output_uri: Annotated[ObjectLocation | None, _says("`s3://bucket/key` to write the result to, as JSON.")] = None
    callback_url: Annotated[Url | None, _says("URL that is told when the job has ended.")] = None


class BulkJobBody(JobBody, forbid_unknown_fields=True, frozen=True, gc=False):
    """One job of `POST /v1/jobs/bulk`."""

    idempotency_key: Annotated[
        Key | None, _says("As the header `Idempotency-Key` of a single job: a repeated one gets the first job.")
    ] = None


class LookupBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Body of `POST /v1/jobs/lookup`."""

    ids: Annotated[
        list[JobIdText],
        _says("Ids of up to 1,000 jobs."),
    ]
    include: Annotated[list[Included], _says("`result`: small results are shown with their jobs.")] = []


class JobView(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A job as clients see it; absent members do not apply (yet).

    Times are RFC 3339, in UTC.
    """

    id: str
    status: str
    model: str | None = None
    version: str | None = None
    adapter: str | None = None
    lane: str | None = None
    item_count: int | None = None
    attempts: int | None = None
    crashes: int | None = None
    max_attempts: int | None = None
    submitted_at: datetime | None = None
    run_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    expires_at: datetime | None = None
    metadata: msgspec.Raw | None = None
    error: JobFailure | None = None
    retry_of: str | None = None
    notice: str | None = None
    provenance: msgspec.Raw | None = None
    result_url: str | None = None
    result_gone: bool = False
    result: msgspec.Raw | None = None
    input_uri: str | None = None
    output_uri: str | None = None
    callback_url: str | None = None


class BulkFailure(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Why a job of a bulk request was not taken; the codes are those of problems."""

    code: str
    message: str
    field: str | None = None


class BulkEntry(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What became of one job of a bulk request: `id` and `status`, or `error`.

    `replayed` is there, and true, where the key was known: the entry shows the first job.
    """

    index: int
    id: str | None = None
    status: str | None = None
    replayed: bool = False
    error: BulkFailure | None = None


class BulkAnswer(msgspec.Struct, frozen=True):
    """Answer of `POST /v1/jobs/bulk`, in the order of the request."""

    jobs: list[BulkEntry]


class Jobs(msgspec.Struct, frozen=True):
    """Answer of `POST /v1/jobs/lookup`, in the order of the ids."""

    jobs: list[JobView]


class JobPage(msgspec.Struct, frozen=True):
    """Answer of `GET /v1/jobs`: newest first; `next` is the `after` of the next page, null on the last one."""

    jobs: list[JobView]
    next: str | None


class ModelLimits(msgspec.Struct, frozen=True):
    """How much a model takes."""

    max_items_per_job: int
    max_item_tokens: int
    overlong: str


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """A model, in OpenAI's shape with ours beside it. `version` is the one that a submission gets by default."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "batchfleet"
    version: str
    versions: list[str]
    task: str
    limits: ModelLimits
    live_workers: int | None


class ModelList(msgspec.Struct, frozen=True):
    """Answer of `GET /v1/models`."""

    data: list[ModelView]
    object: str = "list"


class Health(msgspec.Struct, frozen=True):
    """Answer of `GET /readyz`: `status` is `ready`, `degraded` (still ready) or `unavailable`."""

    status: str
    parts: dict[str, str]
