"""What a client call may raise.

::

    BatchfleetError
    ├── ApiError                 the fleet answered with a problem document
    │   ├── InvalidError         400, 415, 422   the request must change; `field` names what
    │   ├── NotFoundError        404
    │   ├── ConflictError        409             the job has no result (not ended, failed, cancelled, expired)
    │   ├── GoneError            410             the result was removed
    │   ├── TooLargeError        413
    │   ├── OverloadedError      429             try again after `retry_after_s`
    │   └── UnavailableError     502, 503, 504   try again
    ├── ConnectionFailedError    nobody answered
    └── WaitTimeoutError         jobs had not ended in the time given; they go on
"""

from collections.abc import Sequence

import msgspec

from batchfleet.client.values import JobFailure
from batchfleet.errors import BatchfleetError


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


class GoneError(ApiError):
    """The result was removed."""


class TooLargeError(ApiError):
    """Something is over a size limit."""


class OverloadedError(ApiError):
    """The fleet takes no more work now."""


class UnavailableError(ApiError):
    """A part of the fleet cannot be reached."""


class ConnectionFailedError(BatchfleetError):
    """Nobody answered, or the connection broke."""

    code = "connection_failed"


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
    try:
        retry_after_s = float(retry_after) if retry_after else None
    except ValueError:  # the header's other form, a date: our own server never sends it
        retry_after_s = None
    return _BY_STATUS.get(status, ApiError)(status, problem, retry_after_s)
