"""`/v1/webhooks/…`: what the ends of jobs owe and owed to others, and what webhooks are signed with."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec
from litestar import Response, get, post
from litestar.handlers import HTTPRouteHandler

from api import bodies
from api.deliveries import DeliveryPage, RotateBody, SecretList, view_of_delivery, view_of_secret, without_details
from api.query import count, read_query
from api.respond import AnyRequest, answer
from api.services import Services
from batchfleet.access.keys import Role
from batchfleet.errors import InvalidRequestError
from batchfleet.jobs.job import parse_job_id
from batchfleet.outbox.delivery import (
    DeliveryFilter,
    DeliveryId,
    DeliveryKind,
    DeliveryNotFoundError,
    DeliveryState,
    parse_delivery_id,
)
from batchfleet.outbox.port import OutboxStore

T = TypeVar("T")

DEFAULT_PAGE = 100
MAX_PAGE = 1_000
_ROTATE_BYTES = 4_096
_NOT_KEPT = {"Cache-Control": "no-store"}
"""For answers that hold secrets."""

_rotate_decoder = msgspec.json.Decoder(RotateBody)


class WebhookRoutes:
    """Shows and repeats deliveries; shows and changes signing secrets.

    Args:
        services: The working parts.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    def handlers(self) -> list[HTTPRouteHandler]:
        """Returns the route handlers."""
        return [
            get("/v1/webhooks/deliveries", name="list_deliveries")(self.page),
            get("/v1/webhooks/deliveries/{delivery_id:str}", name="get_delivery")(self.get),
            post("/v1/webhooks/deliveries/{delivery_id:str}/replay", name="replay_delivery")(self.replay),
            get("/v1/webhooks/secrets", name="list_webhook_secrets")(self.secrets),
            post("/v1/webhooks/secrets/rotate", name="rotate_webhook_secret")(self.rotate),
        ]

    async def page(self, request: AnyRequest) -> Response[bytes]:
        """Shows a page of deliveries, newest first."""
        caller = await self._services.auth.caller(request, Role.READ)
        values = read_query(request.scope, "job_id", "state", "kind", "after", "limit")
        limit = count(values, "limit", default=DEFAULT_PAGE, most=MAX_PAGE)
        wanted = DeliveryFilter(
            tenant=caller.tenant,
            job_id=parse_job_id(values["job_id"], field="job_id") if "job_id" in values else None,
            states=_states(values.get("state")),
            kind=_kind(values.get("kind")),
            after=parse_delivery_id(values["after"], field="after") if "after" in values else None,
            limit=limit + 1,
        )
        found = await self._read(lambda: self._outbox.list_deliveries(wanted))
        views = [view_of_delivery(delivery) for delivery in found[:limit]]
        return answer(DeliveryPage(views, views[-1].id if len(found) > limit else None))

    async def get(self, request: AnyRequest) -> Response[bytes]:
        """Shows a delivery and its log."""
        caller = await self._services.auth.caller(request, Role.READ)
        read_query(request.scope)
        delivery_id = _path_id(request)
        delivery = await self._read(lambda: self._outbox.find(delivery_id, tenant=caller.tenant))
        if delivery is None:
            raise _unknown(delivery_id)
        log = await self._read(lambda: self._outbox.log_of(delivery_id))
        return answer(view_of_delivery(delivery, log))

    async def replay(self, request: AnyRequest) -> Response[bytes]:
        """Sends a delivery once more, with the same id and a fresh schedule."""
        caller = await self._services.auth.caller(request, Role.SUBMIT)
        read_query(request.scope)
        bodies.check_origin(request, caller)
        delivery_id = _path_id(request)
        delivery = await asyncio.to_thread(self._outbox.replay, delivery_id, tenant=caller.tenant)
        if delivery is None:
            raise _unknown(delivery_id)
        # A ring of the job wakes the schedulers: the delivery need not wait for their next look.
        self._services.job_ended(delivery.job_id)
        view = view_of_delivery(delivery)
        may_read = bool(caller.roles & {Role.READ, Role.ADMIN})
        return answer(view if may_read else without_details(view), 202)

    async def secrets(self, request: AnyRequest) -> Response[bytes]:
        """Shows the secrets that webhooks are signed with now."""
        caller = await self._services.auth.caller(request, Role.ADMIN)
        read_query(request.scope)
        found = await asyncio.to_thread(self._outbox.signing_secrets, caller.tenant)
        return answer(SecretList([view_of_secret(secret) for secret in found]), 200, _NOT_KEPT)

    async def rotate(self, request: AnyRequest) -> Response[bytes]:
        """Makes a new secret; the old ones go on signing for a while."""
        caller = await self._services.auth.caller(request, Role.ADMIN)
        read_query(request.scope)
        bodies.check_json_type(request, caller)
        raw = await bodies.read_body(request, _ROTATE_BYTES)
        body = bodies.decode(_rotate_decoder, raw) if raw.strip() else RotateBody()
        made = await asyncio.to_thread(self._outbox.rotate_secret, caller.tenant, keep_old_s=body.keep_old_s)
        return answer(view_of_secret(made), 200, _NOT_KEPT)

    @property
    def _outbox(self) -> OutboxStore:
        return self._services.parts.outbox

    async def _read(self, read: Callable[[], T]) -> T:
        found: T = await self._services.lookups.call(read)
        return found


def _path_id(request: AnyRequest) -> DeliveryId:
    """Returns the id of the path; what is no id is no delivery."""
    text: str = request.path_params["delivery_id"]
    try:
        return parse_delivery_id(text)
    except InvalidRequestError as exc:
        raise DeliveryNotFoundError(f"no such delivery: {exc}") from exc


def _unknown(delivery_id: DeliveryId) -> DeliveryNotFoundError:
    return DeliveryNotFoundError(f"no such delivery: msg_{delivery_id}")


def _states(text: str | None) -> frozenset[DeliveryState]:
    if text is None:
        return frozenset()
    try:
        return frozenset(DeliveryState(name) for name in text.split(","))
    except ValueError as exc:
        known = ", ".join(DeliveryState)
        raise InvalidRequestError(f"must be of {known}, separated by commas", field="state") from exc


def _kind(text: str | None) -> DeliveryKind | None:
    if text is None:
        return None
    try:
        return DeliveryKind(text)
    except ValueError as exc:
        raise InvalidRequestError(f"must be one of {', '.join(DeliveryKind)}", field="kind") from exc
