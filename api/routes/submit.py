"""`POST /v1/jobs`: one job, answered at once or when it has ended."""

from litestar import Response, post
from litestar.handlers import HTTPRouteHandler

from api import bodies
from api.newjobs import check_key
from api.query import read_query, seconds
from api.respond import AnyRequest, accepted, answer, hung_up
from api.services import Services
from api.submitter import Outcome
from api.views import view_of, view_of_submitted
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
        wait_s = seconds(read_query(request.scope, "wait"), "wait", services.settings.long_poll_max_s)
        key = check_key(request.headers.get("idempotency-key"))
        bodies.check_json_type(request)
        raw = await bodies.read_body(request, services.settings.max_body_bytes)
        body = bodies.decode(bodies.job_decoder, raw)
        pinned = await services.catalog.pin(body.model, body.version)
        lane = Lane.ONLINE if wait_s > 0 else Lane.STANDARD
        job = services.maker.make(body, pinned, lane=lane, key=key)
        services.gate.admit(1)
        if wait_s > 0:
            return await self._submit_and_wait(request, job, wait_s)
        submitted = await self._insert(job)
        if submitted.created:
            return accepted(view_of_submitted(job, submitted), format_job_id(job.id))
        return await self._replayed(job, submitted)

    async def _submit_and_wait(self, request: AnyRequest, job: NewJob, wait_s: float) -> Response[bytes]:
        services = self._services
        # Registered before the row exists: no ring can be missed, and the row need not be read first.
        with services.waiters.waiting(job.id) as waiter:
            submitted = await self._insert(job)
            if not submitted.created:
                return await self._wait_for_first(request, job, submitted, wait_s)

            async def read() -> JobRecord:
                return await services.lookups.one(job.id, tenant=job.tenant, with_result=True)

            record = await services.waiters.until_ended(waiter, wait_s, read, gone=hung_up(request))
        return await self._shown(record, job, submitted)

    async def _wait_for_first(
        self, request: AnyRequest, job: NewJob, submitted: Submitted, wait_s: float
    ) -> Response[bytes]:
        """The key was used before: the answer is the first job's."""
        services = self._services

        async def read() -> JobRecord:
            return await services.lookups.one(submitted.id, tenant=job.tenant, with_result=True)

        with services.waiters.waiting(submitted.id) as waiter:
            record: JobRecord | None = await read()
            if record is not None and not record.state.terminal:
                record = await services.waiters.until_ended(waiter, wait_s, read, gone=hung_up(request))
        return await self._shown(record, job, submitted)

    async def _shown(self, record: JobRecord | None, job: NewJob, submitted: Submitted) -> Response[bytes]:
        """Returns 200 for a job that has ended, 202 for one that has not (or whose caller is gone)."""
        public_id = format_job_id(submitted.id)
        if record is None:
            return accepted(view_of_submitted(job, submitted), public_id)
        notice = await self._services.notice_for(record)
        view = view_of(record, inline_bytes=self._services.settings.inline_result_bytes, notice=notice)
        return answer(view) if record.state.terminal else accepted(view, public_id, **_replayed(submitted))

    async def _insert(self, job: NewJob) -> Submitted:
        outcome: Outcome = (await self._services.submitter.submit((job,)))[0]
        if isinstance(outcome, Exception):
            raise outcome
        if outcome.conflict:
            raise IdempotencyConflictError("the key was used with another body", field="Idempotency-Key")
        if outcome.created:
            self._services.parts.metrics.jobs_submitted.labels(job.model, job.lane.value).inc()
        return outcome

    async def _replayed(self, job: NewJob, submitted: Submitted) -> Response[bytes]:
        public_id = format_job_id(submitted.id)
        try:
            record = await self._services.lookups.one(submitted.id, tenant=job.tenant)
        except JobNotFoundError:  # its record was removed since
            return accepted(view_of_submitted(job, submitted), public_id, **_replayed(submitted))
        return accepted(view_of(record), public_id, **_replayed(submitted))


def _replayed(submitted: Submitted) -> dict[str, str]:
    return {} if submitted.created else {"Idempotency-Replayed": "true"}
