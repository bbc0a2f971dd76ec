"""Every operation of the surface: what it is asked, what it answers, and which role it needs.

A test holds the table to the routes; `openapi` makes the document of it, and another test walks all of it with every
kind of caller.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from api.deliveries import (
    DELIVERY_ID_PATTERN,
    DeliveryPage,
    DeliveryView,
    RotateBody,
    SecretList,
    SecretView,
)
from api.problems import TABLE
from api.schemas import (
    JOB_ID_PATTERN,
    NAME_PATTERN,
    BulkAnswer,
    BulkJobBody,
    Health,
    JobBody,
    JobPage,
    Jobs,
    JobView,
    LookupBody,
    ModelList,
    ModelView,
)
from batchfleet.access.keys import Role
from batchfleet.jobs.states import JobState
from batchfleet.outbox.delivery import DeliveryKind, DeliveryState


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter or a header: what it means, and its JSON schema."""

    told: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation.

    Attributes:
        name: Its `operationId`, equal to the name of the route's handler.
        role: What a key needs for it; None where it is open to all.
        answers: Structure (or media types) of each successful status.
        problems: Codes of problems that it can answer, besides those of every operation.
        told: What a status means, where it is not plain.
        links: Statuses whose answer is a job, with which other operations can go on.
    """

    method: str
    path: str
    name: str
    summary: str
    answers: dict[int, Any]
    role: Role | None = None
    body: Any = None
    body_required: bool = True
    problems: tuple[str, ...] = ()
    told: dict[int, str] | None = None
    query: dict[str, Parameter] | None = None
    headers: dict[str, Parameter] | None = None
    links: tuple[int, ...] = ()

    @property
    def codes(self) -> tuple[str, ...]:
        """All codes of problems that it can answer."""
        keyed = () if self.role is None else ("unauthenticated", "forbidden", *_STORE)
        return tuple(dict.fromkeys((*self.problems, *keyed, *_ALWAYS)))

    @property
    def statuses(self) -> frozenset[int]:
        """The statuses of its problems."""
        return frozenset(TABLE[code].status for code in self.codes)


_ALWAYS = ("unknown_host", "internal_error")
_ASKED = ("invalid_request",)
_BODY = (*_ASKED, "malformed_body", "cross_origin", "body_timeout", "too_large", "unsupported_media_type")
_STORE = ("overloaded", "store_unavailable", "unavailable")
_MODEL = ("model_not_found", "model_config_invalid")
_NO_RESULT = ("job_failed", "job_cancelled", "job_expired", "result_gone")
_WAIT = {
    "wait": Parameter(
        "Seconds for which the answer may wait for the end of the job; 0 (the default) for none.",
        {"type": "number", "minimum": 0, "maximum": 60},
    )
}
_TRUTH = {"type": "string", "enum": ["true", "false", "1", "0"]}
_STATES = "|".join(JobState)
_DELIVERY_STATES = "|".join(DeliveryState)
_ENDED = "The job has ended; it is shown with its result if that is small."
_NOT_ENDED = "The job is taken and has not ended; `Location` says where to ask, `Retry-After` when."
_REPLAYED = "A repeated request with the same key and body gets the first job, with `Idempotency-Replayed: true`."

PATH_PARAMETERS: dict[str, dict[str, Any]] = {
    "job_id": {"type": "string", "pattern": JOB_ID_PATTERN},
    "name": {"type": "string", "pattern": NAME_PATTERN, "maxLength": 64},
    "delivery_id": {"type": "string", "pattern": DELIVERY_ID_PATTERN},
}
"""Forms of the parameters of paths, by name."""

JOBS = (
    Operation(
        method="post",
        path="/v1/jobs",
        name="submit_job",
        summary="Submit one job",
        role=Role.SUBMIT,
        body=JobBody,
        answers={202: JobView, 200: JobView},
        problems=(*_BODY, "unsupported_field", "uri_forbidden", *_MODEL, "idempotency_conflict"),
        told={202: _NOT_ENDED, 200: _ENDED},
        links=(202, 200),
        query=_WAIT,
        headers={
            "Idempotency-Key": Parameter(
                _REPLAYED, {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"}
            )
        },
    ),
    Operation(
        method="post",
        path="/v1/jobs/bulk",
        name="submit_bulk",
        summary="Submit many jobs (JSON array or NDJSON); bad ones do not cost good ones",
        role=Role.SUBMIT,
        body=list[BulkJobBody],
        answers={202: BulkAnswer},
        problems=_BODY,
        told={202: "What became of each job, in order: its `id` and `status`, or its `error`."},
    ),
    Operation(
        method="get",
        path="/v1/jobs",
        name="list_jobs",
        summary="List jobs, newest first",
        role=Role.READ,
        answers={200: JobPage},
        problems=_ASKED,
        query={
            "status": Parameter(
                "States, separated by commas.", {"type": "string", "pattern": f"^({_STATES})(,({_STATES}))*$"}
            ),
            "model": Parameter("Name of a model.", {"type": "string", "pattern": NAME_PATTERN, "maxLength": 64}),
            "dead_letter": Parameter("`true`: only failed jobs that used up their attempts or crashes.", _TRUTH),
            "after": Parameter("Id of the last job of the page before.", PATH_PARAMETERS["job_id"]),
            "limit": Parameter("Jobs of a page; default: 100.", {"type": "integer", "minimum": 1, "maximum": 1000}),
        },
    ),
    Operation(
        method="post",
        path="/v1/jobs/lookup",
        name="look_up_jobs",
        summary="Show up to 1000 jobs at once",
        role=Role.READ,
        body=LookupBody,
        answers={200: Jobs},
        problems=_BODY,
    ),
    Operation(
        method="get",
        path="/v1/jobs/{job_id}",
        name="get_job",
        summary="Show a job, after waiting for its end if asked to",
        role=Role.READ,
        answers={200: JobView, 304: None},
        problems=(*_ASKED, "job_not_found"),
        told={200: "The job; while it has not ended, `Retry-After` says when to ask again.", 304: "Nothing changed."},
        query=_WAIT,
        headers={"If-None-Match": Parameter("The ETag of an earlier answer: 304 if nothing changed.")},
    ),
    Operation(
        method="delete",
        path="/v1/jobs/{job_id}",
        name="delete_job",
        summary="Remove a job that has ended, and its result",
        role=Role.SUBMIT,
        answers={204: None},
        problems=(*_ASKED, "cross_origin", "job_not_found", "job_not_ended", "output_pending"),
        told={204: "Removed: record, inputs, result and idempotency key."},
    ),
    Operation(
        method="get",
        path="/v1/jobs/{job_id}/result",
        name="get_result",
        summary="Fetch the result of a job, in the form that `Accept` likes best",
        role=Role.READ,
        answers={
            200: ("application/json", "application/x-npy", "application/msgpack", "application/x-msgpack"),
            202: JobView,
            303: None,
        },
        problems=(
            *(*_ASKED, "job_not_found", "not_acceptable", "not_representable"),
            *(*_NO_RESULT, "blobs_unavailable"),
        ),
        told={
            200: "The result.",
            202: "No result yet, but the job: it has not ended. Does not wait.",
            303: "A large result, asked for as `application/x-npy`: `Location` is where it lies, for some minutes.",
        },
        query={"redirect": Parameter("`false`: never 303, but the result itself.", _TRUTH)},
    ),
    Operation(
        method="post",
        path="/v1/jobs/{job_id}/cancel",
        name="cancel_job",
        summary="Cancel a job; one that has ended stays as it is",
        role=Role.SUBMIT,
        answers={200: JobView},
        problems=(*_ASKED, "cross_origin", "job_not_found"),
        told={200: "The job, as it is now."},
    ),
)

WEBHOOKS = (
    Operation(
        method="get",
        path="/v1/webhooks/deliveries",
        name="list_deliveries",
        summary="List what the ends of jobs owe and owed, newest first",
        role=Role.READ,
        answers={200: DeliveryPage},
        problems=_ASKED,
        query={
            "job_id": Parameter("Id of a job.", PATH_PARAMETERS["job_id"]),
            "state": Parameter(
                "States, separated by commas.",
                {"type": "string", "pattern": f"^({_DELIVERY_STATES})(,({_DELIVERY_STATES}))*$"},
            ),
            "kind": Parameter(
                "`webhook` (to a `callback_url`) or `output` (to an `output_uri`).",
                {"type": "string", "enum": list(DeliveryKind)},
            ),
            "after": Parameter("Id of the last delivery of the page before.", PATH_PARAMETERS["delivery_id"]),
            "limit": Parameter(
                "Deliveries of a page; default: 100.", {"type": "integer", "minimum": 1, "maximum": 1000}
            ),
        },
    ),
    Operation(
        method="get",
        path="/v1/webhooks/deliveries/{delivery_id}",
        name="get_delivery",
        summary="Show a delivery and the log of its attempts",
        role=Role.READ,
        answers={200: DeliveryView},
        problems=(*_ASKED, "not_found"),
    ),
    Operation(
        method="post",
        path="/v1/webhooks/deliveries/{delivery_id}/replay",
        name="replay_delivery",
        summary="Send a delivery once more, with the same id and a fresh schedule",
        role=Role.SUBMIT,
        answers={202: DeliveryView},
        problems=(*_ASKED, "cross_origin", "not_found"),
        told={202: "The delivery, pending again."},
    ),
    Operation(
        method="get",
        path="/v1/webhooks/secrets",
        name="list_webhook_secrets",
        summary="Show the secrets that webhooks are signed with now",
        role=Role.ADMIN,
        answers={200: SecretList},
        problems=_ASKED,
    ),
    Operation(
        method="post",
        path="/v1/webhooks/secrets/rotate",
        name="rotate_webhook_secret",
        summary="Make a new signing secret; the old ones go on signing for a while",
        role=Role.ADMIN,
        body=RotateBody,
        body_required=False,
        answers={200: SecretView},
        problems=_BODY,
        told={200: "The new secret."},
    ),
)

MODELS = (
    Operation(
        method="get",
        path="/v1/models",
        name="list_models",
        summary="List models (OpenAI's shape)",
        role=Role.READ,
        answers={200: ModelList},
        problems=_ASKED,
    ),
    Operation(
        method="get",
        path="/v1/models/{name}",
        name="get_model",
        summary="Show a model",
        role=Role.READ,
        answers={200: ModelView},
        problems=(*_ASKED, *_MODEL),
    ),
)

PROCESS = (
    Operation(
        method="get",
        path="/healthz",
        name="healthz",
        summary="Whether the process lives",
        answers={200: dict[str, str]},
    ),
    Operation(
        method="get",
        path="/readyz",
        name="readyz",
        summary="Whether the process can take jobs, and what is wrong",
        answers={200: Health, 503: Health},
        told={200: "Jobs are taken (`ready`, or `degraded`).", 503: "The database cannot be reached: `unavailable`."},
    ),
    Operation(
        method="get",
        path="/metrics",
        name="metrics",
        summary="Prometheus metrics",
        role=Role.READ,
        answers={200: ("text/plain",)},
    ),
    Operation(
        method="get",
        path="/openapi.json",
        name="openapi",
        summary="This document",
        answers={200: dict[str, Any]},
    ),
    Operation(method="get", path="/docs", name="docs", summary="This document, to read", answers={200: ("text/html",)}),
)

OPERATIONS = (*JOBS, *WEBHOOKS, *MODELS, *PROCESS)
