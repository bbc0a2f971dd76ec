"""The application: routes, the one error handler, start and end. Everything it works with is handed in."""

from collections.abc import Sequence

from litestar import Litestar, Response, route
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, Receive, Scope, Send

from api.edge import Edge
from api.observed import Observer
from api.parts import Parts
from api.problems import handle
from api.respond import AnyRequest
from api.routes.bulk import BulkRoutes
from api.routes.docs import DocsRoutes
from api.routes.health import HealthRoutes
from api.routes.jobs import JobRoutes
from api.routes.models import ModelRoutes
from api.routes.results import ResultRoutes
from api.routes.submit import SubmitRoutes
from api.routes.webhooks import WebhookRoutes
from api.services import Services

ROUTES = (SubmitRoutes, BulkRoutes, JobRoutes, ResultRoutes, WebhookRoutes, ModelRoutes, HealthRoutes, DocsRoutes)


LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
"""Names of this machine; no page on the web has them."""


class Api:
    """The ASGI application of one process.

    Attributes:
        services: Its working parts, for those who start it and for tests.
    """

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self.services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one connection."""
        await self._app(scope, receive, send)

    def release_waiters(self) -> None:
        """Has every long poll answered with the present state: the process is about to stop."""
        self.services.waiters.release()


def create_app(parts: Parts) -> Api:
    """Returns the application; the parts are used, and not closed, by it."""
    services = Services(parts)
    handlers = [handler for routes in ROUTES for handler in routes(services).handlers()]
    app = Litestar(
        route_handlers=[*_options(handlers), *handlers],
        exception_handlers={Exception: handle},
        on_startup=[services.start],
        on_shutdown=[services.close],
        openapi_config=None,  # ours is in `openapi`, made of the same structures
        logging_config=None,
        request_max_body_size=None,  # `bodies.read_body` refuses, while the body arrives
    )
    settings = parts.settings
    own = ("*",) if services.auth.required else (*LOOPBACK_NAMES, settings.api_host.lower())
    observer = Observer(parts.metrics, parts.tracer)
    return Api(Edge(app, settings.api_hosts or own, observer), services)


def _options(handlers: Sequence[HTTPRouteHandler]) -> list[HTTPRouteHandler]:
    """Returns the handlers of OPTIONS. They come first: the framework's own would know but one method a path."""
    methods: dict[str, set[str]] = {}
    for handler in handlers:
        for path in handler.paths:
            methods.setdefault(path, {"OPTIONS"}).update(handler.http_methods)
    return [_allowing(path, allowed) for path, allowed in methods.items()]


def _allowing(path: str, methods: set[str]) -> HTTPRouteHandler:
    allowed = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))

    async def options(request: AnyRequest) -> Response[None]:  # noqa: ARG001 - a handler's signature
        # No word of CORS: a page of another site may send nothing that a browser would ask about first.
        return Response(content=None, status_code=204, headers={"Allow": allowed})

    return route(path, http_method="OPTIONS", status_code=204)(options)
