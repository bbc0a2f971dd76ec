"""`GET /v1/jobs/{id}/result`: what came back, in the form that the client likes best."""

import asyncio
from collections.abc import Callable

from litestar import Response, get
from litestar.handlers import HTTPRouteHandler

from api.negotiate import choose
from api.newjobs import DEFAULT_TENANT
from api.problems import JobHasNoResultError
from api.query import read_query
from api.respond import AnyRequest, accepted
from api.routes.jobs import path_id
from api.services import Services
from api.views import view_of
from batchfleet.errors import ResultGoneError
from batchfleet.jobs.job import JobRecord, StoredResult, format_job_id
from batchfleet.jobs.states import JobState
from batchfleet.results import codec
from batchfleet.results.blobs import BlobNotFoundError

FORMS: dict[str, Callable[[str, bytes], bytes]] = {
    "application/json": codec.to_json,
    "application/x-npy": codec.to_npy,
    "application/msgpack": codec.to_msgpack,
    "application/x-msgpack": codec.to_msgpack,
}

CONVERTED_ASIDE_BYTES = 32 * 1024
"""Larger results are converted in a thread: other requests must not wait for it."""


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

    async def get(self, request: AnyRequest) -> Response[bytes]:
        """Hands out the result of a job."""
        read_query(request.scope)
        form = choose(request.headers.get("accept", ""), tuple(FORMS))
        job_id = path_id(request)
        job = await self._services.lookups.one(job_id, tenant=DEFAULT_TENANT, with_result=True)
        if not job.state.terminal:
            notice = await self._services.notice_for(job)
            return accepted(view_of(job, notice=notice), format_job_id(job.id))
        stored = _stored(job)
        data = await self._bytes(stored)
        content = await _converted(FORMS[form], stored.format, data)
        return Response(content=content, media_type=form, headers={"Vary": "Accept"})

    async def _bytes(self, stored: StoredResult) -> bytes:
        if stored.data is not None:
            return stored.data
        if stored.blob_key is None:
            raise ResultGoneError("the result was removed")
        try:
            return await asyncio.to_thread(self._services.parts.blobs.get, stored.blob_key)
        except BlobNotFoundError as exc:
            raise ResultGoneError("the result was removed") from exc


def _stored(job: JobRecord) -> StoredResult:
    if job.state is not JobState.SUCCEEDED:
        raise JobHasNoResultError(job)
    if job.result is None:
        raise ResultGoneError("the result was removed")
    return job.result


async def _converted(convert: Callable[[str, bytes], bytes], result_format: str, data: bytes) -> bytes:
    if len(data) <= CONVERTED_ASIDE_BYTES:
        return convert(result_format, data)
    return await asyncio.to_thread(convert, result_format, data)
