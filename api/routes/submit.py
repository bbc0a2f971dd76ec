"""`POST /v1/jobs`: one job, answered at once or when it has ended."""

from collections.abc import Awaitable

from litestar import Response, post
from litestar.handlers import HTTPRouteHandler

from api import bodies
from api.newjobs import check_key
from api.newlinks import has_links
from api.query import read_query, seconds
from api.respond import AnyRequest, accepted, answer, hung_up
from api.services import Services
from api.submitter import Outcome
from api.views import view_of, view_of_submitted
from batchfleet.access.keys import Role
from batchfleet.access.tenants import Tenant
from batchfleet.errors import IdempotencyConflictError, JobNotFoundError
from batchfleet.jobs.job import JobRecord, Lane, NewJob, Submitted, format_job_id


class SubmitRoutes:
    """Takes single jobs.

    Args:
        services: The working parts.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    def handlers(self) -> list[HTTPRouteHandler]:
        """Returns the route handlers."""
        return [post("/v1/jobs", name="submit_job")(self.submit)]

    async def submit(self, request: AnyRequest) -> Response[bytes]:
        """Takes one job."""
        services = self._services
        caller = await services.auth.caller(request, Role.SUBMIT)
        wait_s = seconds(read_query(request.scope, "wait"), "wait", services.settings.long_poll_max_s)
        key = check_key(*request.headers.getall("idempotency-key", []))
        bodies.check_json_type(request, caller)
        raw = await bodies.read_body(request, services.settings.max_body_bytes)
        body = bodies.decode(bodies.job_decoder, raw)
        tenant = await services.tenant(caller) if has_links(body) else Tenant(name=caller.tenant)
        pinned = await services.catalog.pin(body.model, body.version)
        lane = Lane.ONLINE if wait_s > 0 else Lane.STANDARD
        job = services.maker.make(body, pinned, lane=lane, key=key, tenant=tenant)
        services.gate.admit(1)
        if wait_s > 0:
            return await self._submit_and_wait(request, job, wait_s)
        submitted = await self._insert(job)
        if submitted.created:
            return accepted(view_of_submitted(job, submitted), format_job_id(job.id))
        return await self._shown(self._read(job, submitted), job, submitted)

    async def _submit_and_wait(self, request: AnyRequest, job: NewJob, wait_s: float) -> Response[bytes]:
        waiters = self._services.waiters
        # Registered before the row exists: no ring can be missed, and the row need not be read first.
        with waiters.waiting(job.id) as waiter:
            submitted = await self._insert(job)
            if not submitted.created:
                return await self._shown(self._first(request, job, submitted, wait_s), job, submitted)
            reading = waiters.until_ended(waiter, wait_s, lambda: self._read(job, submitted), gone=hung_up(request))
            return await self._shown(reading, job, submitted)

    async def _first(self, request: AnyRequest, job: NewJob, submitted: Submitted, wait_s: float) -> JobRecord | None:
        """The key was used before: waits for the first job."""
        waiters = self._services.waiters
        with waiters.waiting(submitted.id) as waiter:
            record = await self._read(job, submitted)
            if record.state.terminal:
                return record
            return await waiters.until_ended(waiter, wait_s, lambda: self._read(job, submitted), gone=hung_up(request))

    async def _read(self, job: NewJob, submitted: Submitted) -> JobRecord:
        return await self._services.lookups.one(submitted.id, tenant=job.tenant, with_result=True)

    async def _shown(self, reading: Awaitable[JobRecord | None], job: NewJob, submitted: Submitted) -> Response[bytes]:
        """Returns 200 for a job that has ended, 202 for one that has not (or whose caller is gone)."""
        try:
            record = await reading
        except JobNotFoundError:  # it was removed since
            record = None
        if record is None:
            view, ended = view_of_submitted(job, submitted), submitted.state.terminal
        else:
            notice = await self._services.notice_for(record)
            view = view_of(record, inline_bytes=self._services.settings.inline_result_bytes, notice=notice)
            ended = record.state.terminal
        replayed = {} if submitted.created else {"Idempotency-Replayed": "true"}
        return answer(view, 200, replayed) if ended else accepted(view, view.id, **replayed)

    async def _insert(self, job: NewJob) -> Submitted:
        outcome: Outcome = (await self._services.submitter.submit((job,)))[0]
        if isinstance(outcome, Exception):
            raise outcome
        if outcome.conflict:
            raise IdempotencyConflictError("the key was used with another body", field="Idempotency-Key")
        if outcome.created:
            self._services.parts.metrics.jobs_submitted.labels(job.model, job.lane.value).inc()
        return outcome
