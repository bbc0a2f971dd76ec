"""A small HTTP proxy before an S3 server that fails as busy or broken servers do, as often as a test says.

with FaultyProxy(bucket.server) as proxy:
    proxy.fail(Trouble.SLOW_DOWN, times=2)
    …  # the client's next two requests are answered 503, the third goes through
"""

import http.client
import threading
from collections.abc import Callable
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self

from tests.support.s3servers import S3Server

_HOP = {"connection", "expect", "keep-alive", "transfer-encoding"}


class Trouble(Enum):
    """How a request fails."""

    SLOW_DOWN = "SlowDown"
    """503, as S3 answers to too many requests."""
    INTERNAL = "InternalError"
    """500."""
    DENIED = "AccessDenied"
    """403, as a bucket policy answers."""
    TOO_LARGE = "EntityTooLarge"
    """400: this very request is refused."""
    BAD_NAME = "InvalidObjectName"
    """400: a name that this server does not take."""
    CUT = "cut"
    """The connection ends in the middle of the answer's body."""


_STATUS = {
    Trouble.SLOW_DOWN: 503,
    Trouble.INTERNAL: 500,
    Trouble.DENIED: 403,
    Trouble.TOO_LARGE: 400,
    Trouble.BAD_NAME: 400,
}


class FaultyProxy:
    """Forwards requests as they are (signatures stay good: the host that was signed is the proxy's own)."""

    def __init__(self, server: S3Server) -> None:
        self._server = server
        self._trouble: Trouble | None = None
        self._times = 0
        self._only: Callable[[str, str], bool] = _any
        self._changed = threading.Condition()
        self._hold: threading.Event | None = None
        self.failed = 0
        """How many requests were answered with trouble."""
        self.seen: list[tuple[str, str]] = []
        """Method and path of each request."""
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        """Its address: an S3 endpoint URL."""
        return f"http://127.0.0.1:{self._http.server_port}"

    def fail(self, trouble: Trouble, times: int = 1_000_000, *, only: Callable[[str, str], bool] | None = None) -> None:
        """Fails the next requests; those for which `only(method, path)` is true, if it is given."""
        with self._changed:
            self._trouble, self._times, self._only = trouble, times, only or _any

    def heal(self) -> None:
        """Lets everything through again."""
        with self._changed:
            self._trouble = None

    def hold(self) -> threading.Event:
        """Holds all requests from now on until the event is set."""
        self._hold = threading.Event()
        return self._hold

    def wait_failed(self, count: int, timeout_s: float = 30.0) -> None:
        """Returns when so many requests have failed."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.failed >= count, timeout_s), self.failed

    def wait_seen(self, count: int, timeout_s: float = 30.0) -> None:
        """Returns when so many requests have come."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.seen) >= count, timeout_s), self.seen

    def next_trouble(self, method: str, path: str) -> Trouble | None:
        """Notes a request; returns how it is to fail, if it is."""
        with self._changed:
            self.seen.append((method, path))
            trouble = self._trouble if self._times and self._only(method, path) else None
            if trouble is not None:
                self._times -= 1
                self.failed += 1
            self._changed.notify_all()
            held = self._hold
        if held is not None:
            held.wait(60)
        return trouble

    def forward(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> http.client.HTTPResponse:
        """Sends a request on; the answer's body is read already."""
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=20)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers:
                if name.lower() not in _HOP:
                    connection.putheader(name, value)
            connection.putheader("Connection", "close")
            connection.endheaders(body)
            answer = connection.getresponse()
            answer.whole = answer.read()  # type: ignore[attr-defined]
            return answer
        finally:
            connection.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._hold is not None:
            self._hold.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


def _any(_method: str, _path: str) -> bool:
    return True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: ClassVar[FaultyProxy]

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        trouble = self.proxy.next_trouble(self.command, self.path)
        if trouble is not None and trouble in _STATUS:
            text = f"<Error><Code>{trouble.value}</Code><Message>told by the test</Message></Error>".encode()
            self._answer(_STATUS[trouble], [("Content-Type", "application/xml")], text, len(text))
            return
        try:
            answer = self.proxy.forward(self.command, self.path, list(self.headers.items()), body)
        except OSError:
            self.close_connection = True
            return
        whole: bytes = answer.whole  # type: ignore[attr-defined]
        length = int(answer.headers.get("Content-Length") or len(whole))
        if trouble is Trouble.CUT:
            whole = whole[: len(whole) // 2]
            self.close_connection = True
        self._answer(answer.status, list(answer.headers.items()), whole, length)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _handle  # noqa: N815 - the base class's names

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes, length: int) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _HOP | {"content-length"}:
                self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Says nothing."""
