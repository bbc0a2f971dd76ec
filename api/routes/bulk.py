"""`POST /v1/jobs/bulk`: many jobs in one request, each with its own fate."""

import asyncio
from collections import Counter
from collections.abc import Sequence

from litestar import Response, post
from litestar.handlers import HTTPRouteHandler

from api import bodies
from api.catalog import PinnedModel
from api.newlinks import has_links
from api.problems import code_of, detail_of, logger
from api.query import read_query
from api.respond import AnyRequest, answer
from api.schemas import BulkAnswer, BulkEntry, BulkFailure, BulkJobBody
from api.services import Services
from api.submitter import Outcome
from batchfleet.access.keys import Role
from batchfleet.access.tenants import Tenant
from batchfleet.errors import BatchfleetError, IdempotencyConflictError, InvalidRequestError
from batchfleet.jobs.job import Lane, NewJob, Submitted, format_job_id

JOBS_PER_TURN = 256
"""After so many the event loop gets a turn: other requests must not wait for a whole bulk."""

_Wanted = tuple[str, str | None]


class BulkRoutes:
    """Takes many jobs.

    Args:
        services: The working parts.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    def handlers(self) -> list[HTTPRouteHandler]:
        """Returns the route handlers."""
        return [post("/v1/jobs/bulk", name="submit_bulk")(self.submit)]

    async def submit(self, request: AnyRequest) -> Response[bytes]:
        """Takes a JSON array or NDJSON of jobs."""
        services = self._services
        caller = await services.auth.caller(request, Role.SUBMIT)
        read_query(request.scope)
        if "idempotency-key" in request.headers:
            raise InvalidRequestError("each job of a bulk request has its own idempotency_key", field="Idempotency-Key")
        bodies.check_json_type(request, caller, also=bodies.NDJSON_TYPES)
        raw = await bodies.read_body(request, services.settings.max_body_bytes)
        ndjson = bodies.content_type(request) in bodies.NDJSON_TYPES
        members = bodies.decode_bulk(raw, ndjson=ndjson, limit=services.settings.max_bulk_jobs)
        linked = any(isinstance(member, BulkJobBody) and has_links(member) for member in members)
        tenant = await services.tenant(caller) if linked else Tenant(name=caller.tenant)
        made = await self._make(members, tenant)
        jobs = [job for job in made if isinstance(job, NewJob)]
        if jobs:
            services.gate.admit(len(jobs))
        outcomes = await services.submitter.submit(jobs)
        self._count(jobs, outcomes)
        return answer(BulkAnswer(_entries(made, outcomes)), 202)

    async def _make(
        self, members: Sequence[BulkJobBody | InvalidRequestError], tenant: Tenant
    ) -> list[NewJob | BatchfleetError]:
        pins = await self._pins(members)
        made: list[NewJob | BatchfleetError] = []
        for start in range(0, len(members), JOBS_PER_TURN):
            made += [self._made(member, pins, tenant) for member in members[start : start + JOBS_PER_TURN]]
            await asyncio.sleep(0)
        return made

    async def _pins(
        self, members: Sequence[BulkJobBody | InvalidRequestError]
    ) -> dict[_Wanted, PinnedModel | BatchfleetError]:
        """Each model of the request is looked for once."""
        wanted = {(body.model, body.version): None for body in members if isinstance(body, BulkJobBody)}
        pins: dict[_Wanted, PinnedModel | BatchfleetError] = {}
        for pair in wanted:
            try:
                pins[pair] = await self._services.catalog.pin(*pair)
            except BatchfleetError as exc:
                pins[pair] = exc
        return pins

    def _made(
        self,
        member: BulkJobBody | InvalidRequestError,
        pins: dict[_Wanted, PinnedModel | BatchfleetError],
        tenant: Tenant,
    ) -> NewJob | BatchfleetError:
        if isinstance(member, InvalidRequestError):
            return member
        pinned = pins[member.model, member.version]
        if isinstance(pinned, BatchfleetError):
            return pinned
        try:
            key = member.idempotency_key
            return self._services.maker.make(member, pinned, lane=Lane.BULK, key=key, tenant=tenant)
        except BatchfleetError as exc:
            return exc

    def _count(self, jobs: Sequence[NewJob], outcomes: Sequence[Outcome]) -> None:
        created = Counter(
            (job.model, job.lane)
            for job, outcome in zip(jobs, outcomes, strict=True)
            if isinstance(outcome, Submitted) and outcome.created
        )
        for (model, lane), number in created.items():
            self._services.parts.metrics.jobs_submitted.labels(model, lane.value).inc(number)


def _entries(made: Sequence[NewJob | BatchfleetError], outcomes: Sequence[Outcome]) -> list[BulkEntry]:
    inserted = iter(outcomes)
    return [
        _entry(index, next(inserted) if isinstance(member, NewJob) else member) for index, member in enumerate(made)
    ]


def _entry(index: int, outcome: Outcome) -> BulkEntry:
    if isinstance(outcome, Exception):
        return _refused(index, outcome)
    if outcome.conflict:
        return _refused(index, IdempotencyConflictError("the key was used with another body", field="idempotency_key"))
    return BulkEntry(index, format_job_id(outcome.id), outcome.state.value, replayed=not outcome.created)


def _refused(index: int, exc: Exception) -> BulkEntry:
    failure = BulkFailure(code_of(exc), detail_of(exc), getattr(exc, "field", None))
    if failure.code == "internal_error":
        logger.error("job %d of a bulk request failed", index, exc_info=exc)
    return BulkEntry(index, error=failure)
