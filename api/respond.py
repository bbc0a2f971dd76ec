"""Small helpers that all routes share."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from litestar import Request, Response

from api.views import encode, job_url

AnyRequest: TypeAlias = Request[Any, Any, Any]

RETRY_AFTER_S = 1
"""When to ask again about a job that has not ended."""

_JSON = "application/json"


def answer(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response[bytes]:
    """Returns a structure as JSON."""
    return Response(content=encode(body), status_code=status, media_type=_JSON, headers=headers)


def accepted(body: object, public_id: str, **headers: str) -> Response[bytes]:
    """Returns 202: the job exists, and where to ask about it."""
    told = {"Location": job_url(public_id), "Retry-After": str(RETRY_AFTER_S), **headers}
    return answer(body, 202, told)


def hung_up(request: AnyRequest) -> Callable[[], Awaitable[None]]:
    """Returns a function that returns when the client has hung up."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    return gone
