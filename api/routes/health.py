"""`/healthz`, `/readyz` and `/metrics`: for those who run the fleet."""

import asyncio
import logging

from litestar import Response, get
from litestar.handlers import HTTPRouteHandler

from api.respond import AnyRequest, answer
from api.schemas import Health
from api.services import Services
from batchfleet.access.keys import Role
from batchfleet.errors import BatchfleetError
from batchfleet.logs import Action, said_by
from batchfleet.telemetry import METRICS_CONTENT_TYPE

logger = logging.getLogger(__name__)

PROBE_S = 3.0
"""A part that does not answer within this counts as down."""

_METRICS_TYPE = METRICS_CONTENT_TYPE.partition("; charset=")[0]
"""Litestar states the character set of texts itself."""

_ALIVE = b'{"status":"ok"}'


class HealthRoutes:
    """Says how the process is.

    Args:
        services: The working parts.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    def handlers(self) -> list[HTTPRouteHandler]:
        """Returns the route handlers."""
        return [
            get("/healthz", name="healthz")(self.alive),
            get("/readyz", name="readyz")(self.ready),
            get("/metrics", name="metrics")(self.metrics),
        ]

    async def alive(self, request: AnyRequest) -> Response[bytes]:  # noqa: ARG002 - a handler's signature
        """Says that the event loop turns."""
        return Response(content=_ALIVE, media_type="application/json")

    async def ready(self, request: AnyRequest) -> Response[bytes]:  # noqa: ARG002 - a handler's signature
        """Says of each part whether it answers; only the database decides about readiness."""
        database, broker = await asyncio.gather(self._database(), self._broker())
        parts = {"database": database, "broker": broker}
        if self._services.auth.required:
            parts = {name: self._for_strangers(name, state) for name, state in parts.items()}
        health = Health(_status(database, broker), parts)
        return answer(health, 503 if health.status == "unavailable" else 200)

    async def metrics(self, request: AnyRequest) -> Response[bytes]:
        """Renders all metrics; the queues are counted in a thread."""
        await self._services.auth.caller(request, Role.READ)
        text = await asyncio.to_thread(self._services.parts.metrics.render)
        return Response(content=text, media_type=_METRICS_TYPE)

    @staticmethod
    def _for_strangers(part: str, state: str) -> str:
        """Anybody may ask, but reasons tell of our insides (hosts, paths): they go to the log where others can ask."""
        if state in {"ok", "none"}:
            return state
        logger.info("%s is not ready: %s", part, state)
        return "down"

    async def _database(self) -> str:
        """Asks at every probe: what it costs is one row, and a schema may be put away under our feet."""
        try:
            async with asyncio.timeout(PROBE_S):
                await self._services.lookups.call(self._services.parts.store.ping)
        except BatchfleetError as exc:
            if said := said_by(exc):
                logger.info("database is not ready: %s", exc, extra={"action": Action.STORE_UNAVAILABLE, **said})
            return str(exc) or exc.code
        except TimeoutError:
            return "does not answer"
        return "ok"

    async def _broker(self) -> str:
        if self._services.parts.announcer is None:
            return "none"
        try:
            async with asyncio.timeout(PROBE_S):
                await self._services.broker.get()
        except BatchfleetError as exc:
            return str(exc) or exc.code
        except TimeoutError:
            return "does not answer"
        return "ok"


def _status(database: str, broker: str) -> str:
    if database != "ok":
        return "unavailable"
    return "ready" if broker in {"ok", "none"} else "degraded"
