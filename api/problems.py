"""What went wrong, as clients see it: RFC 9457 `application/problem+json`, with one table from code to status.

`docs/reference/errors.md` explains each code; a test holds the page to this table.
"""

import logging
from dataclasses import dataclass
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException

from batchfleet.errors import BatchfleetError, InvalidRequestError, OverloadedError
from batchfleet.jobs.job import JobError, JobRecord, format_job_id
from batchfleet.logs import Action, said_by
from batchfleet.masking import mask_text

logger = logging.getLogger(__name__)

PROBLEM_TYPE = "application/problem+json"
REQUEST_ID = "batchfleet.request_id"
"""Key of the request id in the ASGI scope; `api.edge` writes it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: what a code means in HTTP."""

    status: int
    title: str


TABLE: dict[str, Row] = {
    "invalid_request": Row(400, "The request is not valid"),
    "malformed_body": Row(400, "The body is not valid JSON"),
    "unsupported_field": Row(400, "This deployment cannot honour a field of the request"),
    "unauthenticated": Row(401, "The request has no valid API key"),
    "forbidden": Row(403, "The API key may not do this"),
    "uri_forbidden": Row(403, "The tenant may not use this location"),
    "cross_origin": Row(403, "The request comes from a page of another site"),
    "unknown_host": Row(421, "The request is for another host"),
    "not_found": Row(404, "There is no such thing"),
    "model_not_found": Row(404, "There is no such model or version"),
    "job_not_found": Row(404, "There is no such job"),
    "blob_not_found": Row(404, "There is no such blob"),
    "method_not_allowed": Row(405, "The resource does not have this method"),
    "not_acceptable": Row(406, "The result cannot be had in a form that you accept"),
    "not_representable": Row(406, "The result does not fit into the form asked for"),
    "body_timeout": Row(408, "The body did not arrive"),
    "result_not_ready": Row(409, "The job has not ended yet"),
    "job_not_ended": Row(409, "The job has not ended: it cannot be removed"),
    "output_pending": Row(409, "The job's output is still to be written: it cannot be removed"),
    "job_failed": Row(409, "The job failed: it has no result"),
    "job_cancelled": Row(409, "The job was cancelled: it has no result"),
    "job_expired": Row(409, "The job expired before it started: it has no result"),
    "result_gone": Row(410, "The result was removed"),
    "too_large": Row(413, "Something is over a size limit"),
    "unsupported_media_type": Row(415, "The body's content type is not supported"),
    "idempotency_conflict": Row(422, "The idempotency key was used with another body"),
    "overloaded": Row(429, "The fleet takes no more of this work now"),
    "internal_error": Row(500, "Something went wrong here"),
    "model_error": Row(500, "The model cannot be used"),
    "model_config_invalid": Row(500, "The model's configuration is wrong"),
    "model_digest_mismatch": Row(500, "The model's files are not the published ones"),
    "runtime_unavailable": Row(500, "The model's runtime cannot be had"),
    "model_below_floor": Row(500, "The model is under its accuracy floor"),
    "pass_failed": Row(500, "A forward pass failed"),
    "out_of_memory": Row(500, "A forward pass did not fit into memory"),
    "unavailable": Row(503, "A part that the work needs cannot be reached"),
    "store_unavailable": Row(503, "The database cannot be used now"),
    "broker_unavailable": Row(503, "The broker cannot be reached"),
    "blobs_unavailable": Row(503, "The blob store cannot be reached"),
}

_BY_STATUS = {
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    413: "too_large",
    415: "unsupported_media_type",
    429: "overloaded",
    503: "unavailable",
}
"""What the framework itself refuses is told by status; we give it a code."""

_RETRY_AFTER_UNAVAILABLE_S = 2
_RETRY_AFTER_OUTPUT_S = 5


class MalformedBodyError(InvalidRequestError):
    """The body is not valid JSON (or not valid NDJSON)."""

    code = "malformed_body"


class UnsupportedMediaTypeError(InvalidRequestError):
    """The body says that it is something other than JSON."""

    code = "unsupported_media_type"


class UnauthenticatedError(BatchfleetError):
    """The request has no key that opens anything. Says the same of every such key, and of none."""

    code = "unauthenticated"

    def __init__(self) -> None:
        super().__init__("this needs a valid API key, as `Authorization: Bearer bf_…` or `X-API-Key: bf_…`")


class ForbiddenError(BatchfleetError):
    """The key does not have the role that this needs."""

    code = "forbidden"


class UriForbiddenError(InvalidRequestError):
    """A location under none of the tenant's prefixes; whether anything is there is not looked at."""

    code = "uri_forbidden"


class BodyTimeoutError(BatchfleetError):
    """The client sent a part of its body, and then nothing for too long."""

    code = "body_timeout"


class CrossOriginError(InvalidRequestError):
    """A browser sent it for a page of another site."""

    code = "cross_origin"


class UnknownHostError(InvalidRequestError):
    """The request is for a host name that is not ours: a page on the web that points its name at us."""

    code = "unknown_host"


class NotAcceptableError(BatchfleetError):
    """The result has no representation among those accepted."""

    code = "not_acceptable"


class JobNotEndedError(BatchfleetError):
    """The job has not ended: it cannot be removed."""

    code = "job_not_ended"


class OutputPendingError(BatchfleetError):
    """The job's output is still to be written: it cannot be removed."""

    code = "output_pending"


class JobHasNoResultError(BatchfleetError):
    """The result of a job was asked for that ended without one.

    Attributes:
        job: The job.
    """

    def __init__(self, job: JobRecord) -> None:
        super().__init__(job.error.message if job.error else f"the job is {job.state}")
        self.job = job


class JobFailure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a job, or one of its items, has no result, as JSON."""

    code: str
    message: str
    item: int | None = None
    field: str | None = None


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A problem document; absent members do not apply."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    field: str | None = None
    request_id: str | None = None
    job_id: str | None = None
    job_error: JobFailure | None = None


def failure_of(error: JobError) -> JobFailure:
    """Returns a job's error as JSON; `field` names the item as the submitter wrote it."""
    field = None if error.item is None else f"inputs[{error.item}]"
    return JobFailure(error.code, error.message, error.item, field)


def code_of(exc: Exception) -> str:
    """Returns the code of any exception; `internal_error` for what was not raised on purpose."""
    if isinstance(exc, JobHasNoResultError):
        return f"job_{exc.job.state}"
    if isinstance(exc, BatchfleetError):
        # A kind of error that a part adds later has at least its parent's row.
        codes = (getattr(kind, "code", "") for kind in type(exc).__mro__)
        return next(code for code in codes if code in TABLE)
    if isinstance(exc, HTTPException):
        return _BY_STATUS.get(exc.status_code, "invalid_request" if exc.status_code < 500 else "internal_error")
    return "internal_error"


def detail_of(exc: Exception) -> str:
    """Returns a sentence that is safe to show: unexpected errors say nothing of our insides."""
    if isinstance(exc, HTTPException):
        return "there is no such path; /docs lists those there are" if exc.status_code == 404 else mask_text(exc.detail)
    if isinstance(exc, BatchfleetError) and str(exc):
        return mask_text(str(exc))  # it may echo a path, into which somebody put his key
    return "an unexpected error; the log has more under the request id"


def problem_of(exc: Exception, request_id: str | None = None) -> Problem:
    """Returns the problem document of an exception."""
    code = code_of(exc)
    row = TABLE[code]
    job = exc.job if isinstance(exc, JobHasNoResultError) else None
    return Problem(
        type=f"urn:batchfleet:error:{code}",
        title=row.title,
        status=row.status,
        detail=detail_of(exc),
        code=code,
        field=getattr(exc, "field", None),
        request_id=request_id,
        job_id=format_job_id(job.id) if job else None,
        job_error=failure_of(job.error) if job and job.error else None,
    )


def _request_id(request: Request[Any, Any, Any]) -> str | None:
    found = request.scope.get(REQUEST_ID)
    return found if isinstance(found, str) else None


def handle(request: Request[Any, Any, Any], exc: Exception) -> Response[bytes]:
    """Litestar's exception handler for everything."""
    problem = problem_of(exc, _request_id(request))
    if problem.code == "internal_error":
        logger.error("request %s failed", problem.request_id, exc_info=exc, extra={"action": Action.REQUEST_FAILED})
    elif said := said_by(exc):
        extra = {"action": Action.STORE_UNAVAILABLE, **said}
        logger.warning("request %s failed: %s", problem.request_id, exc, extra=extra)
    headers = dict(exc.headers or {}) if isinstance(exc, HTTPException) else {}
    if isinstance(exc, OverloadedError):
        headers["Retry-After"] = str(max(1, round(exc.retry_after_s)))
    elif problem.status == 503:
        headers["Retry-After"] = str(_RETRY_AFTER_UNAVAILABLE_S)
    elif isinstance(exc, OutputPendingError):
        headers["Retry-After"] = str(_RETRY_AFTER_OUTPUT_S)
    elif problem.status == 408:
        headers["Connection"] = "close"  # what may still come of the body is no next request
    elif problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(
        content=msgspec.json.encode(problem), status_code=problem.status, media_type=PROBLEM_TYPE, headers=headers
    )
