"""`GET /v1/jobs/{id}/result`: what came back, in the form that the client likes best."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import ParamSpec, TypeVar

from litestar import Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.response import Stream

from api.negotiate import choose
from api.problems import JobHasNoResultError
from api.query import flag, read_query
from api.respond import AnyRequest, accepted
from api.routes.jobs import path_id
from api.services import Services
from api.views import view_of
from batchfleet.access.keys import Role
from batchfleet.errors import ResultGoneError
from batchfleet.jobs.job import JobRecord, StoredResult, format_job_id
from batchfleet.jobs.states import JobState
from batchfleet.results import codec
from batchfleet.results.blobs import BlobNotFoundError
from batchfleet.results.pieces import FORMS, Pieces

P = ParamSpec("P")
R = TypeVar("R")

CONVERTED_ASIDE_BYTES = 32 * 1024
"""Larger results are converted in a thread: other requests must not wait for it."""

STREAMED_BYTES = 1024 * 1024
"""Still larger ones are converted while they are sent, piece by piece."""

_NPY = "application/x-npy"
_VARIES = {"Vary": "Accept"}


class ResultRoutes:
    """Hands out results.

    Args:
        services: The working parts.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    def handlers(self) -> list[HTTPRouteHandler]:
        """Returns the route handlers."""
        return [get("/v1/jobs/{job_id:str}/result", name="get_result")(self.get)]

    async def get(self, request: AnyRequest) -> Response[bytes] | Stream:
        """Hands out the result of a job, or says where it lies in just the form asked for."""
        caller = await self._services.auth.caller(request, Role.READ)
        redirect = flag(read_query(request.scope, "redirect"), "redirect", default=True)
        form = choose(request.headers.get("accept", ""), tuple(FORMS))
        job_id = path_id(request)
        job = await self._services.lookups.one(job_id, tenant=caller.tenant, with_result=True)
        if not job.state.terminal:
            notice = await self._services.notice_for(job)
            return accepted(view_of(job, notice=notice), format_job_id(job.id))
        stored = _stored(job)
        if redirect and form == _NPY and stored.blob_key is not None and codec.is_npy(stored.format):
            url = await self._reading(caller.tenant, self._link, stored.blob_key, format_job_id(job.id))
            if url is not None:
                return Response(content=b"", status_code=303, headers={"Location": url, **_VARIES})
        data = stored.data if stored.data is not None else await self._blob(caller.tenant, stored)
        return await _given(form, stored.format, data)

    async def _blob(self, tenant: str, stored: StoredResult) -> bytes:
        if stored.blob_key is None:
            raise ResultGoneError("the result was removed")
        return await self._reading(tenant, self._services.parts.blobs.get, stored.blob_key)

    def _link(self, key: str, public_id: str) -> str | None:
        """Returns where anybody can read the blob for a while; None where the store has no such thing."""
        blobs = self._services.parts.blobs
        url = blobs.link(key, content_type=_NPY, file_name=f"{public_id}.npy")
        if url is not None and not blobs.exists(key):
            raise BlobNotFoundError(f"no blob {key}")
        return url

    async def _reading(self, tenant: str, read: Callable[P, R], *args: P.args, **options: P.kwargs) -> R:
        """Asks the blob store in a thread.

        Raises:
            ResultGoneError: If the blob is not there (any more).
            BlobsUnavailableError: If the store cannot be asked.
        """
        try:
            return await self._services.blobs.call(tenant, read, *args, **options)
        except BlobNotFoundError as exc:
            raise ResultGoneError("the result was removed") from exc


def _stored(job: JobRecord) -> StoredResult:
    if job.state is not JobState.SUCCEEDED:
        raise JobHasNoResultError(job)
    if job.result is None:
        raise ResultGoneError("the result was removed")
    return job.result


async def _given(form: str, result_format: str, data: bytes) -> Response[bytes] | Stream:
    """Returns the result in a form; a large one is converted while it is sent, and is never whole in memory twice."""
    if len(data) <= CONVERTED_ASIDE_BYTES:
        return _whole(form, result_format, data)
    if len(data) <= STREAMED_BYTES:
        return await asyncio.to_thread(_whole, form, result_format, data)
    pieces = await asyncio.to_thread(FORMS[form], result_format, data)
    return Stream(_aside(pieces), media_type=form, headers=_VARIES)


def _whole(form: str, result_format: str, data: bytes) -> Response[bytes]:
    return Response(content=b"".join(FORMS[form](result_format, data)), media_type=form, headers=_VARIES)


async def _aside(pieces: Pieces) -> AsyncIterator[bytes]:
    """Converts the next piece in a thread when the one before it has been sent."""
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        yield bytes(piece)
