"""The outermost layer: gives each request an id, lets HEAD stand for GET, and logs at debug level."""

import logging
import re
import time
import uuid
from collections.abc import Iterable
from typing import Any

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import REQUEST_ID

logger = logging.getLogger("api.access")

_ACCEPTABLE = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}\Z")


class Edge:
    """An ASGI application around another one.

    Args:
        app: The application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one connection."""
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope["headers"])
        header = (b"x-request-id", request_id)
        inner: dict[str, Any] = dict(scope)
        inner[REQUEST_ID] = request_id.decode("ascii")
        if inner["method"] == "HEAD":
            inner["method"] = "GET"  # the server leaves the body out, since its own scope still says HEAD

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], header]
            await send(message)

        if logger.isEnabledFor(logging.DEBUG):
            await _logged(self._app, inner, receive, send_with_id)
        else:
            await self._app(inner, receive, send_with_id)  # type: ignore[arg-type]  # a scope with our key


async def _logged(app: ASGIApp, scope: dict[str, Any], receive: Receive, send: Send) -> None:
    began = time.perf_counter()
    status = 0

    async def send_and_note(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        await send(message)

    try:
        await app(scope, receive, send_and_note)  # type: ignore[arg-type]  # a scope with our key
    finally:
        milliseconds = (time.perf_counter() - began) * 1000
        logger.debug(
            "%s %s %d %.1f ms", scope["method"], scope["path"], status, milliseconds,
            extra={"action": "request", "request_id": scope[REQUEST_ID]},
        )  # fmt: skip


def _request_id(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Returns the id that the client chose, if it is harmless in a log and a header, or a fresh one."""
    for name, value in headers:
        if name == b"x-request-id" and _ACCEPTABLE.match(value):
            return value
    return uuid.uuid4().hex.encode("ascii")
