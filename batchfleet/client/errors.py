"""What a client call may raise.

::

    BatchfleetError
    ├── ApiError                 the fleet answered with a problem document; `code`, `field`, `request_id` say more
    │   ├── InvalidError         400, 405, 406, 415, 421, 422   the request must change; `field` names what
    │   ├── UnauthenticatedError 401             no API key, or one that opens nothing
    │   ├── ForbiddenError       403             the key may not do that
    │   ├── NotFoundError        404             no such job or model, or another tenant's
    │   ├── ConflictError        409             the job's state does not allow it; `job_error` says why it failed
    │   │   └── NotReadyError    202             … yet: it has not ended; `job_status` says where it stands
    │   ├── GoneError            410             the result was removed
    │   ├── TooLargeError        413
    │   ├── OverloadedError      429             try again after `retry_after_s`
    │   ├── InternalError        500             a fault of the fleet's; its log has more under `request_id`
    │   └── UnavailableError     408, 502, 503, 504   try again
    ├── PartialResultError       some inputs have no value; `items` has the values and errors of all
    ├── ConnectionFailedError    nobody answered, or something that is no fleet
    ├── ClientConfigError        the URL or the key cannot be used
    └── WaitTimeoutError         jobs had not ended in the time given; they go on
"""

from collections.abc import Sequence

import msgspec

from batchfleet.client.values import ItemResults, JobFailure
from batchfleet.errors import BatchfleetError

_ACCEPTED = 202
_NOT_READY = "result_not_ready"
_NAMED = 5
"""So many jobs a message names; `pending` has all."""


class Problem(msgspec.Struct, frozen=True):
    """An RFC 9457 problem document; members that do not apply are absent."""

    title: str = ""
    detail: str = ""
    code: str = ""
    field: str | None = None
    request_id: str | None = None
    job_error: JobFailure | None = None


class ApiError(BatchfleetError):
    """The fleet refused the request.

    Attributes:
        status: The HTTP status.
        problem: What the fleet said.
        retry_after_s: When it asked to be tried again, if it did.
        repeats: How often the request had been repeated when this answer came.
    """

    def __init__(self, status: int, problem: Problem, retry_after_s: float | None = None) -> None:
        subject = f"{problem.field}: " if problem.field else ""
        super().__init__(f"{subject}{problem.detail or problem.title or 'the request failed'}")
        self.status = status
        self.problem = problem
        self.retry_after_s = retry_after_s
        self.repeats = 0

    @property
    def code(self) -> str:  # type: ignore[override]  # the fleet says it, not the class
        """The fleet's code of the error, for example `model_not_found`; `http_502` where a proxy answered."""
        return self.problem.code or f"http_{self.status}"

    @property
    def field(self) -> str | None:
        """What is wrong with the request, as a path (`inputs[4]`), where one field is."""
        return self.problem.field

    @property
    def request_id(self) -> str | None:
        """Under which id the fleet's log has the request."""
        return self.problem.request_id


class InvalidError(ApiError):
    """The request must change before it can succeed."""


class UnauthenticatedError(ApiError):
    """The fleet wants an API key, and got none, or one that opens nothing (any more)."""


class ForbiddenError(ApiError):
    """The API key may not do that: it has another role."""


class NotFoundError(ApiError):
    """There is no such job, model or page, or it belongs to another tenant."""


class ConflictError(ApiError):
    """The job's state does not allow it: it has not ended, or ended without a result."""

    @property
    def job_error(self) -> JobFailure | None:
        """Why the job has no result, if it failed."""
        return self.problem.job_error


class NotReadyError(ConflictError):
    """The job has not ended yet: wait for it, then ask again.

    Attributes:
        job_status: `queued` or `running`.
    """

    def __init__(self, job_id: str, job_status: str, retry_after_s: float | None = None) -> None:
        problem = Problem(detail=f"{job_id} has not ended yet ({job_status})", code=_NOT_READY)
        super().__init__(_ACCEPTED, problem, retry_after_s)
        self.job_status = job_status


class GoneError(ApiError):
    """The result was removed."""


class TooLargeError(ApiError):
    """Something is over a size limit."""


class OverloadedError(ApiError):
    """The fleet takes no more work now."""


class InternalError(ApiError):
    """A fault of the fleet's own."""


class UnavailableError(ApiError):
    """A part of the fleet cannot be reached, or the request did not arrive in time."""


class PartialResultError(BatchfleetError):
    """The result is no single array: some inputs have no value, or the values differ in shape or kind.

    Attributes:
        items: The values and errors, input by input.
    """

    code = "partial_result"

    def __init__(self, job_id: str, items: ItemResults) -> None:
        failed = len(items.errors)
        why = f"{failed} of its inputs have no value" if failed else "its values are not arrays of one shape and type"
        super().__init__(f"{job_id}: the result is no single array: {why}; ask for `item_results`")
        self.items = items


class ConnectionFailedError(BatchfleetError):
    """Nobody answered, the connection broke, or what answered is no fleet."""

    code = "connection_failed"


class ClientConfigError(BatchfleetError, ValueError):
    """The client's URL or key cannot be used; the message says which."""

    code = "client_config_invalid"


class WaitTimeoutError(BatchfleetError):
    """Jobs had not ended when the time was over. They go on; ask for them again.

    Attributes:
        pending: The ids of those jobs.
    """

    code = "wait_timeout"

    def __init__(self, pending: Sequence[str]) -> None:
        named = ", ".join(pending[:_NAMED])
        more = f" and {len(pending) - _NAMED} more" if len(pending) > _NAMED else ""
        super().__init__(f"not ended in time: {named}{more}")
        self.pending = tuple(pending)


_BY_STATUS: dict[int, type[ApiError]] = {
    400: InvalidError,
    401: UnauthenticatedError,
    403: ForbiddenError,
    404: NotFoundError,
    405: InvalidError,
    406: InvalidError,
    408: UnavailableError,
    409: ConflictError,
    410: GoneError,
    413: TooLargeError,
    415: InvalidError,
    421: InvalidError,
    422: InvalidError,
    429: OverloadedError,
    500: InternalError,
    502: UnavailableError,
    503: UnavailableError,
    504: UnavailableError,
}


def error_of(status: int, body: bytes, *, retry_after: str | None, request_id: str | None = None) -> ApiError:
    """Returns the error that an answer means. A body that is no problem document (a proxy's) still makes one."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except msgspec.MsgspecError:
        problem = Problem(title=f"HTTP {status}", detail=body[:200].decode(errors="replace").strip())
    if problem.request_id is None and request_id:
        problem = msgspec.structs.replace(problem, request_id=request_id)
    return _BY_STATUS.get(status, ApiError)(status, problem, seconds_of(retry_after))


def seconds_of(retry_after: str | None) -> float | None:
    """Returns what a `Retry-After` header asks for; None without one, or in its other form, a date."""
    try:
        seconds = float(retry_after) if retry_after else None
    except ValueError:  # our own server never sends a date
        return None
    return seconds if seconds is None or seconds >= 0 else None


def about(job_id: str, error: NotFoundError) -> NotFoundError:
    """Returns the error with the job's id in its message: of many ids, the caller must know which."""
    text = error.problem.detail or error.problem.title
    if job_id not in text:
        text = f"{job_id}: {text}"
    problem = msgspec.structs.replace(error.problem, detail=text)
    named = NotFoundError(error.status, problem, error.retry_after_s)
    named.repeats = error.repeats
    return named
