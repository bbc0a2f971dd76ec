"""`/openapi.json` and `/docs`: the surface described, with nothing loaded from elsewhere."""

from functools import cached_property
from typing import Any

from litestar import Response, get
from litestar.handlers import HTTPRouteHandler

from api.docpage import page_of
from api.openapi import document
from api.respond import AnyRequest
from api.services import Services
from api.views import encode
from batchfleet import __version__

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


class DocsRoutes:
    """Describes the surface.

    Args:
        services: The working parts, which know whether keys are required.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    @cached_property
    def _document(self) -> dict[str, Any]:
        longest_wait_s = self._services.settings.long_poll_max_s
        return document(__version__, keys_required=self._services.auth.required, longest_wait_s=longest_wait_s)

    @cached_property
    def _json(self) -> bytes:
        return encode(self._document)

    @cached_property
    def _page(self) -> bytes:
        return page_of(self._document).encode()

    def handlers(self) -> list[HTTPRouteHandler]:
        """Returns the route handlers."""
        return [get("/openapi.json", name="openapi")(self.openapi), get("/docs", name="docs")(self.docs)]

    async def openapi(self, request: AnyRequest) -> Response[bytes]:  # noqa: ARG002 - a handler's signature
        """Returns the OpenAPI document."""
        return Response(content=self._json, media_type="application/json")

    async def docs(self, request: AnyRequest) -> Response[bytes]:  # noqa: ARG002 - a handler's signature
        """Returns the document as a page."""
        headers = {"Content-Security-Policy": _POLICY}
        return Response(content=self._page, media_type="text/html", headers=headers)
