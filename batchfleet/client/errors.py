"""What a client call may raise.

::

    BatchfleetError
    ├── ApiError                 the fleet answered with a problem document
    │   ├── InvalidError         400, 415, 422   the request must change; `field` names what
    │   ├── NotFoundError        404
    │   ├── ConflictError        409             the job has no result (failed, cancelled, expired)
    │   │   └── NotReadyError    202             … yet: it has not ended; `job_status` says where it stands
    │   ├── GoneError            410             the result was removed
    │   ├── TooLargeError        413
    │   ├── OverloadedError      429             try again after `retry_after_s`
    │   └── UnavailableError     502, 503, 504   try again
    ├── ConnectionFailedError    nobody answered, or something that is no fleet
    ├── ClientConfigError        the URL or the key cannot be used
    └── WaitTimeoutError         jobs had not ended in the time given; they go on
"""

from collections.abc import Sequence

import msgspec

from batchfleet.client.values import JobFailure
from batchfleet.errors import BatchfleetError

_ACCEPTED = 202
_NOT_READY = "result_not_ready"


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
    """

    def __init__(self, status: int, problem: Problem, retry_after_s: float | None = None) -> None:
        where = f" (field {problem.field})" if problem.field else ""
        super().__init__(f"{problem.detail or problem.title or 'the request failed'}{where}")
        self.status = status
        self.problem = problem
        self.retry_after_s = retry_after_s

    @property
    def error_code(self) -> str:
        """The fleet's code of the error, for example `model_not_found`."""
        return self.problem.code


class InvalidError(ApiError):
    """The request must change before it can succeed."""


class NotFoundError(ApiError):
    """There is no such job, model or page."""


class ConflictError(ApiError):
    """The job has no result: it has not ended, or ended without one."""


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


class UnavailableError(ApiError):
    """A part of the fleet cannot be reached."""


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
        super().__init__(f"{len(pending)} job(s) had not ended in time")
        self.pending = tuple(pending)


_BY_STATUS: dict[int, type[ApiError]] = {
    400: InvalidError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    413: TooLargeError,
    415: InvalidError,
    422: InvalidError,
    429: OverloadedError,
    502: UnavailableError,
    503: UnavailableError,
    504: UnavailableError,
}


def error_of(status: int, body: bytes, retry_after: str | None) -> ApiError:
    """Returns the error that an answer means. A body that is no problem document (a proxy's) still makes one."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except msgspec.MsgspecError:
        problem = Problem(title=f"HTTP {status}", detail=body[:200].decode(errors="replace").strip())
    return _BY_STATUS.get(status, ApiError)(status, problem, seconds_of(retry_after))


def seconds_of(retry_after: str | None) -> float | None:
    """Returns what a `Retry-After` header asks for; None without one, or in its other form, a date."""
    try:
        return float(retry_after) if retry_after else None
    except ValueError:  # our own server never sends a date
        return None


def about(job_id: str, error: NotFoundError) -> NotFoundError:
    """Returns the error with the job's id in its message: of many ids, the caller must know which."""
    text = error.problem.detail or error.problem.title
    problem = msgspec.structs.replace(error.problem, detail=f"{job_id}: {text}")
    return NotFoundError(error.status, problem, error.retry_after_s)
