"""`/v1/jobs/…`: one job, many jobs, the list, cancelling and removing."""

import asyncio
import logging
import re

from litestar import Response, delete, get, post
from litestar.handlers import HTTPRouteHandler

from api import bodies
from api.lookups import RESULTS_PER_STATEMENT, no_job
from api.negotiate import unchanged
from api.problems import JobNotEndedError, OutputPendingError
from api.query import count, flag, read_query, seconds
from api.respond import RETRY_AFTER_S, AnyRequest, answer, hung_up
from api.schemas import MAX_LOOKUP_IDS, NAME_PATTERN, JobPage, Jobs, JobView
from api.services import Services
from api.views import etag_of, unknown_job, view_of
from batchfleet.access.keys import Role
from batchfleet.errors import BatchfleetError, InvalidRequestError, JobNotFoundError, TooLargeError
from batchfleet.jobs.job import JobFilter, JobId, JobRecord, parse_job_id
from batchfleet.jobs.states import JobState

logger = logging.getLogger(__name__)

DEFAULT_PAGE = 100
MAX_PAGE = 1_000
ID_BYTES = 36
BLOB_REMOVAL_S = 5.0
"""For how long the removal of a job waits for that of its blob; the sweep finds what is left."""

_NAME = re.compile(NAME_PATTERN.strip("^$").replace("+", "{1,64}"))
_STATES = ", ".join(JobState)


class JobRoutes:
    """Shows, cancels and removes jobs.

    Args:
        services: The working parts.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    def handlers(self) -> list[HTTPRouteHandler]:
        """Returns the route handlers."""
        return [
            get("/v1/jobs", name="list_jobs")(self.page),
            post("/v1/jobs/lookup", name="look_up_jobs")(self.look_up),
            get("/v1/jobs/{job_id:str}", name="get_job")(self.get),
            post("/v1/jobs/{job_id:str}/cancel", name="cancel_job")(self.cancel),
            delete("/v1/jobs/{job_id:str}", name="delete_job")(self.delete),
        ]

    async def get(self, request: AnyRequest) -> Response[bytes]:
        """Shows a job, after waiting for its end if asked to."""
        services = self._services
        tenant = await self._tenant(request, Role.READ)
        wait_s = seconds(read_query(request.scope, "wait"), "wait", services.settings.long_poll_max_s)
        job_id = path_id(request)
        if wait_s == 0:
            job = await self._read(job_id, tenant)
        else:
            job = await self._wait(request, job_id, tenant, wait_s)
        notice = await services.notice_for(job)
        etag = etag_of(job, notice)
        headers = {"ETag": etag}
        if not job.state.terminal:
            headers["Retry-After"] = str(RETRY_AFTER_S)
        if unchanged(request.headers.get("if-none-match"), etag):
            return Response(content=b"", status_code=304, headers=headers)
        view = view_of(job, inline_bytes=services.settings.inline_result_bytes, notice=notice)
        return answer(view, 200, headers)

    async def look_up(self, request: AnyRequest) -> Response[bytes]:
        """Shows many jobs at once, in the order of the ids."""
        caller = await self._services.auth.caller(request, Role.READ)
        read_query(request.scope)
        bodies.check_json_type(request, caller)
        raw = await bodies.read_body(request, self._services.settings.max_body_bytes)
        body = bodies.decode(bodies.lookup_decoder, raw)
        if len(body.ids) > MAX_LOOKUP_IDS:
            raise TooLargeError(f"at most {MAX_LOOKUP_IDS} ids", field="ids")
        for index, name in enumerate(body.include):
            if name != "result":
                raise InvalidRequestError("only 'result' can be included", field=f"include[{index}]")
        ids = [parse_job_id(text, field=f"ids[{index}]") for index, text in enumerate(body.ids)]
        views = await self._views(ids, caller.tenant, with_results=bool(body.include))
        return answer(Jobs([views.get(key) or unknown_job(text) for key, text in zip(ids, body.ids, strict=True)]))

    async def page(self, request: AnyRequest) -> Response[bytes]:
        """Shows a page of jobs, newest first."""
        tenant = await self._tenant(request, Role.READ)
        values = read_query(request.scope, "status", "model", "dead_letter", "after", "limit")
        limit = count(values, "limit", default=DEFAULT_PAGE, most=MAX_PAGE)
        wanted = JobFilter(
            tenant=tenant,
            states=_states(values.get("status")),
            model=_plain(values.get("model")),
            dead_letters=flag(values, "dead_letter"),
            after=parse_job_id(values["after"], field="after") if "after" in values else None,
            limit=limit + 1,
        )
        found = await self._services.lookups.call(lambda: self._services.parts.store.list_jobs(wanted))
        views = [view_of(job) for job in found[:limit]]
        return answer(JobPage(views, views[-1].id if len(found) > limit else None))

    async def cancel(self, request: AnyRequest) -> Response[bytes]:
        """Cancels a job; one that has ended stays as it is."""
        caller = await self._services.auth.caller(request, Role.SUBMIT)
        read_query(request.scope)
        bodies.check_origin(request, caller)
        job_id = path_id(request)
        cancelled = await self._services.submitter.cancel(job_id, tenant=caller.tenant)
        if cancelled is None:
            raise no_job(job_id)
        if cancelled[2]:
            self._services.job_ended(job_id)
        job = await self._services.lookups.one(job_id, tenant=caller.tenant)
        return answer(view_of(job))

    async def delete(self, request: AnyRequest) -> Response[None]:
        """Removes a job that has ended: its record and its result."""
        caller = await self._services.auth.caller(request, Role.SUBMIT)
        read_query(request.scope)
        bodies.check_origin(request, caller)
        job_id = path_id(request)
        deleted = await self._services.submitter.delete(job_id, tenant=caller.tenant)
        if deleted is None:
            raise no_job(job_id)
        if not deleted.state.terminal:
            raise JobNotEndedError(f"the job is {deleted.state}: cancel it first, or wait for its end")
        if deleted.owed:
            raise OutputPendingError("the job's output_uri has not been written yet: wait for its delivery to end")
        if deleted.blob_key is not None:
            await self._remove_blob(caller.tenant, deleted.blob_key)
        return Response(content=None, status_code=204)

    async def _remove_blob(self, tenant: str, key: str) -> None:
        """Removes the blob of a job that is gone already; what fails here costs only space, until the next sweep."""
        try:
            async with asyncio.timeout(BLOB_REMOVAL_S):
                await self._services.blobs.call(tenant, self._services.parts.blobs.delete, key)
        except (BatchfleetError, TimeoutError) as exc:
            logger.warning("the blob %s was not removed, which is left to the sweep: %s", key, exc)

    async def _tenant(self, request: AnyRequest, role: Role) -> str:
        return (await self._services.auth.caller(request, role)).tenant

    async def _read(self, job_id: JobId, tenant: str) -> JobRecord:
        return await self._services.lookups.one(job_id, tenant=tenant, with_result=True)

    async def _wait(self, request: AnyRequest, job_id: JobId, tenant: str, wait_s: float) -> JobRecord:
        waiters = self._services.waiters
        with waiters.waiting(job_id) as waiter:
            job = await self._read(job_id, tenant)
            if job.state.terminal:
                return job
            ended = await waiters.until_ended(waiter, wait_s, lambda: self._read(job_id, tenant), gone=hung_up(request))
        return ended or job  # a client that hung up reads neither

    async def _views(self, ids: list[JobId], tenant: str, *, with_results: bool) -> dict[JobId, JobView]:
        """Reads in slices, so that no more results than one slice's are in memory beside those shown."""
        settings = self._services.settings
        budget = settings.max_body_bytes if with_results else 0
        step = RESULTS_PER_STATEMENT if with_results else MAX_LOOKUP_IDS
        views: dict[JobId, JobView] = {}
        for start in range(0, len(ids), step):
            records = await self._services.lookups.many(
                ids[start : start + step], tenant=tenant, with_results=budget > 0
            )
            for key, job in records.items():
                view = view_of(job, inline_bytes=min(budget, settings.inline_result_bytes))
                budget -= len(bytes(view.result)) if view.result is not None else 0
                views[key] = view
        return views


def path_id(request: AnyRequest) -> JobId:
    """Returns the id of the path; what is no id is no job.

    Raises:
        JobNotFoundError: If it is not written like an id.
    """
    text: str = request.path_params["job_id"]
    try:
        return parse_job_id(text)
    except InvalidRequestError as exc:
        raise JobNotFoundError(f"no such job: {exc}") from exc


def _states(text: str | None) -> frozenset[JobState]:
    if text is None:
        return frozenset()
    try:
        return frozenset(JobState(name) for name in text.split(","))
    except ValueError as exc:
        raise InvalidRequestError(f"must be of {_STATES}, separated by commas", field="status") from exc


def _plain(text: str | None) -> str | None:
    if text is not None and not _NAME.fullmatch(text):
        raise InvalidRequestError("is not the name of a model", field="model")
    return text
