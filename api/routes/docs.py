"""`/openapi.json` and `/docs`: the surface described, with nothing loaded from elsewhere."""

import html
from typing import Any

from litestar import Response, get
from litestar.handlers import HTTPRouteHandler

from api.openapi import document
from api.respond import AnyRequest
from api.services import Services
from api.views import encode
from batchfleet import __version__

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;"
    "background:#fff}h2{font-size:1.1rem;margin:2rem 0 .3rem}code{font-family:ui-monospace,monospace}"
    ".method{display:inline-block;min-width:3.5rem;font-weight:700}table{border-collapse:collapse}"
    "td,th{text-align:left;padding:.15rem 1rem .15rem 0;vertical-align:top}"
)


class DocsRoutes:
    """Describes the surface.

    Args:
        services: The working parts; not used, but all routes are made alike.
    """

    def __init__(self, services: Services) -> None:  # noqa: ARG002 - all routes are made alike
        described = document(__version__)
        self._json = encode(described)
        self._page = page_of(described).encode()

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


def page_of(described: dict[str, Any]) -> str:
    """Returns a page that lists the operations of an OpenAPI document."""
    title = html.escape(f"{described['info']['title']} {described['info']['version']}")
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>",
        f"<h1>{title}</h1><p>The whole description, with all fields: <a href=/openapi.json>openapi.json</a></p>",
    ]
    for path, methods in described["paths"].items():
        parts += [_operation(path, method, operation) for method, operation in methods.items()]
    return "\n".join(parts)


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    parameters = "".join(
        f"<tr><td><code>{each['name']}</code><td>{each['in']}<td>{html.escape(each.get('description', ''))}"
        for each in operation["parameters"]
    )
    answers = "".join(
        f"<tr><td>{status}<td>{html.escape(each['description'])}" for status, each in operation["responses"].items()
    )
    return (
        f"<h2><span class=method>{method.upper()}</span> <code>{html.escape(path)}</code></h2>"
        f"<p>{html.escape(operation['summary'])}</p><table>{parameters}</table><table>{answers}</table>"
    )
