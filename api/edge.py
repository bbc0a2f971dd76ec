"""The outermost layer: gives each request an id, refuses foreign hosts, lets HEAD stand for GET.

Without keys the process listens on loopback only. A page on the web could still reach it by *DNS rebinding*: its own
name is made to point to 127.0.0.1, and the browser then takes us for its site. What gives it away is the `Host`
header, which has the page's name. Where keys are required any name passes, unless the settings list some.
"""

import random
import re
from collections.abc import Iterable
from typing import Any

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from api.observed import Observer
from api.problems import REQUEST_ID, UnknownHostError, problem_of
from api.views import encode

_ACCEPTABLE = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}\Z")


class Edge:
    """An ASGI application around another one.

    Args:
        app: The application.
        hosts: Names under which it may be reached; with `*` among them, all.
        observer: Watches every request, refused ones too.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str], observer: Observer) -> None:
        self._app = app
        self._hosts = frozenset(hosts)
        self._observer = observer
        # Seeded by the system once. Asking it each time lets go of the interpreter in the middle of a request.
        self._random = random.Random()  # noqa: S311 - ids tell requests apart, they open nothing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one connection."""
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        request_id = _chosen_id(scope["headers"]) or b"%032x" % self._random.getrandbits(128)
        header = (b"x-request-id", request_id)
        inner: dict[str, Any] = dict(scope)
        inner[REQUEST_ID] = request_id.decode("ascii")
        if inner["method"] == "HEAD":
            inner["method"] = "GET"  # the server leaves the body out, since its own scope still says HEAD

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], header]
            await send(message)

        app = self._app if self._known_host(scope["headers"]) else _refuse
        await self._observer.watch(app, inner, receive, send_with_id)

    def _known_host(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        if "*" in self._hosts:
            return True
        stated = [value for name, value in headers if name == b"host"]
        # HTTP/1.0 clients state none; a browser always does.
        return not stated or (len(stated) == 1 and _name_of(stated[0]) in self._hosts)


def _name_of(host: bytes) -> str:
    """Returns the name of a `Host` header, without its port: `localhost:8080`, `[::1]:8080`."""
    text = host.decode("latin-1").lower()
    return text[: text.index("]") + 1] if text.startswith("[") and "]" in text else text.partition(":")[0]


async def _refuse(scope: Scope, _receive: Receive, send: Send) -> None:
    error = UnknownHostError("not known under this name (BATCHFLEET_API_HOSTS lists the names)", field="Host")
    problem = problem_of(error, scope[REQUEST_ID])  # type: ignore[literal-required]  # our own key
    headers = [(b"content-type", b"application/problem+json")]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": encode(problem), "more_body": False})


def _chosen_id(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """Returns the id that the client chose, if it is harmless in a log and a header."""
    for name, value in headers:
        if name == b"x-request-id" and _ACCEPTABLE.match(value):
            return value
    return None
