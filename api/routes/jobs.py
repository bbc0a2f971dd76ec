"""`/v1/jobs/…`: one job, many jobs, the list, and cancelling."""

from litestar import Response, get, post
from litestar.handlers import HTTPRouteHandler

from api import bodies
from api.lookups import RESULTS_PER_STATEMENT
from api.negotiate import unchanged
from api.newjobs import DEFAULT_TENANT
from api.query import count, flag, read_query, seconds
from api.respond import RETRY_AFTER_S, AnyRequest, answer, hung_up
from api.schemas import MAX_LOOKUP_IDS, JobPage, Jobs, JobView
from api.services import Services
from api.views import etag_of, unknown_job, view_of
from batchfleet.errors import InvalidRequestError, JobNotFoundError, TooLargeError
from batchfleet.jobs.job import JobFilter, JobId, JobRecord, parse_job_id
from batchfleet.jobs.states import JobState

DEFAULT_PAGE = 100
MAX_PAGE = 1_000
ID_BYTES = 36
_STATES = ", ".join(JobState)


class JobRoutes:
    """Shows and cancels jobs.

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
        ]

    async def get(self, request: AnyRequest) -> Response[bytes]:
        """Shows a job, after waiting for its end if asked to."""
        services = self._services
        wait_s = seconds(read_query(request.scope, "wait"), "wait", services.settings.long_poll_max_s)
        job_id = path_id(request)
        job = await self._read(job_id) if wait_s == 0 else await self._wait(request, job_id, wait_s)
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
        read_query(request.scope)
        bodies.check_json_type(request)
        raw = await bodies.read_body(request, self._services.settings.max_body_bytes)
        body = bodies.decode(bodies.lookup_decoder, raw)
        if len(body.ids) > MAX_LOOKUP_IDS:
            raise TooLargeError(f"at most {MAX_LOOKUP_IDS} ids", field="ids")
        for index, name in enumerate(body.include):
            if name != "result":
                raise InvalidRequestError("only 'result' can be included", field=f"include[{index}]")
        ids = [parse_job_id(text, field=f"ids[{index}]") for index, text in enumerate(body.ids)]
        views = await self._views(ids, with_results=bool(body.include))
        return answer(Jobs([views.get(key) or unknown_job(text) for key, text in zip(ids, body.ids, strict=True)]))

    async def page(self, request: AnyRequest) -> Response[bytes]:
        """Shows a page of jobs, newest first."""
        values = read_query(request.scope, "status", "model", "dead_letter", "after", "limit")
        limit = count(values, "limit", default=DEFAULT_PAGE, most=MAX_PAGE)
        wanted = JobFilter(
            tenant=DEFAULT_TENANT,
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
        read_query(request.scope)
        bodies.check_origin(request)
        job_id = path_id(request)
        cancelled = await self._services.submitter.cancel(job_id, tenant=DEFAULT_TENANT)
        if cancelled is None:
            raise JobNotFoundError("no such job")
        if cancelled[2]:
            self._services.job_ended(job_id)
        job = await self._services.lookups.one(job_id, tenant=DEFAULT_TENANT)
        return answer(view_of(job))

    async def _read(self, job_id: JobId) -> JobRecord:
        return await self._services.lookups.one(job_id, tenant=DEFAULT_TENANT, with_result=True)

    async def _wait(self, request: AnyRequest, job_id: JobId, wait_s: float) -> JobRecord:
        waiters = self._services.waiters
        with waiters.waiting(job_id) as waiter:
            job = await self._read(job_id)
            if job.state.terminal:
                return job
            ended = await waiters.until_ended(waiter, wait_s, lambda: self._read(job_id), gone=hung_up(request))
        return ended or job  # a client that hung up reads neither

    async def _views(self, ids: list[JobId], *, with_results: bool) -> dict[JobId, JobView]:
        """Reads in slices, so that no more results than one slice's are in memory beside those shown."""
        settings = self._services.settings
        budget = settings.max_body_bytes if with_results else 0
        step = RESULTS_PER_STATEMENT if with_results else MAX_LOOKUP_IDS
        views: dict[JobId, JobView] = {}
        for start in range(0, len(ids), step):
            records = await self._services.lookups.many(
                ids[start : start + step], tenant=DEFAULT_TENANT, with_results=budget > 0
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
    if text is not None and not (text.isascii() and text.isprintable()):
        raise InvalidRequestError("is not the name of a model", field="model")
    return text
