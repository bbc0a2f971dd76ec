"""The application: routes, the one error handler, start and end. Everything it works with is handed in."""

from litestar import Litestar
from litestar.types import ASGIApp, Receive, Scope, Send

from api.edge import Edge
from api.parts import Parts
from api.problems import handle
from api.routes.bulk import BulkRoutes
from api.routes.docs import DocsRoutes
from api.routes.health import HealthRoutes
from api.routes.jobs import JobRoutes
from api.routes.models import ModelRoutes
from api.routes.results import ResultRoutes
from api.routes.submit import SubmitRoutes
from api.services import Services

ROUTES = (SubmitRoutes, BulkRoutes, JobRoutes, ResultRoutes, ModelRoutes, HealthRoutes, DocsRoutes)


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
    app = Litestar(
        route_handlers=[handler for routes in ROUTES for handler in routes(services).handlers()],
        exception_handlers={Exception: handle},
        on_startup=[services.start],
        on_shutdown=[services.close],
        openapi_config=None,  # ours is in `openapi`, made of the same structures
        logging_config=None,
        request_max_body_size=None,  # `bodies.read_body` refuses, while the body arrives
    )
    settings = parts.settings
    hosts = settings.api_hosts or (*LOOPBACK_NAMES, settings.api_host.lower())
    return Api(Edge(app, hosts), services)
