"""What clients may say and what they are told, as msgspec structures: decoding them is the validation of form.

Unknown members are refused by name. What needs a model or the settings is checked in `newjobs`.
"""

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from api.problems import JobFailure
from batchfleet.jobs.admission import MAX_ATTEMPTS, MAX_RUN_TIMEOUT_S, MAX_TTL_S
from batchfleet.jobs.job import Lane, OnItemError

MAX_LOOKUP_IDS = 1_000

Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._-]+\Z")]
Key = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[ -~]+\Z")]
Moment = Annotated[datetime, Meta(tz=True)]
TimeToLive = Annotated[float, Meta(gt=0, le=MAX_TTL_S)]
RunTimeout = Annotated[float, Meta(gt=0, le=MAX_RUN_TIMEOUT_S)]
Attempts = Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)]


class JobBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    """Body of `POST /v1/jobs`."""

    model: Name
    inputs: list[Any] | UnsetType = UNSET
    version: Name | None = None
    parameters: dict[str, Any] | None = None
    lane: Lane | None = None
    run_at: Moment | None = None
    ttl_s: TimeToLive | None = None
    on_item_error: OnItemError = OnItemError.FAIL
    metadata: dict[str, Any] | None = None
    run_timeout_s: RunTimeout | None = None
    max_attempts: Attempts | None = None
    # Part of the contract, but not built yet: refused by name, never ignored.
    adapter: str | None = None
    input_uri: Any = None
    output_uri: Any = None
    callback_url: Any = None


class BulkJobBody(JobBody, forbid_unknown_fields=True, frozen=True, gc=False):
    """One job of `POST /v1/jobs/bulk`."""

    idempotency_key: Key | None = None


class LookupBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Body of `POST /v1/jobs/lookup`."""

    ids: list[str]
    include: list[str] = []


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
    result: msgspec.Raw | None = None


class BulkFailure(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Why a job of a bulk request was not taken; the codes are those of problems."""

    code: str
    message: str
    field: str | None = None


class BulkEntry(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What became of one job of a bulk request: `id` and `status`, or `error`."""

    index: int
    id: str | None = None
    status: str | None = None
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
