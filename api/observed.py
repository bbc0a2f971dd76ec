"""Each request as it is told of: counted by route, logged, and traced where traces are asked for.

Labels are bounded: the route is the pattern that matched (all paths that match none are `unmatched`), the method one
that routes have, and the status one that an answer has.
"""

import logging
import time
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any, Final

from litestar.types import ASGIApp, Message, Receive, Send
from prometheus_client import Counter, Histogram

from api.problems import REQUEST_ID
from batchfleet.logs import Action, bind_fields, unbind_fields
from batchfleet.telemetry import Metrics
from batchfleet.tracing import SpanContext, SpanKind, Tracer

logger = logging.getLogger("api.access")

UNMATCHED: Final = "unmatched"
ABORTED: Final = "aborted"
"""Stands for the status where the client was gone before there was one."""

_SUBMITTING: Final = frozenset({"/v1/jobs", "/v1/jobs/bulk"})
"""Where the trace of a job begins. What only reads is not traced: clients poll."""

_METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

_TRACEPARENT: Final[ContextVar[str | None]] = ContextVar("batchfleet_traceparent", default=None)


def current_traceparent() -> str | None:
    """Returns what a job that is submitted by this request carries on; None where the request is not traced."""
    return _TRACEPARENT.get()


class Observer:
    """Watches the requests of one process.

    Args:
        metrics: Where they are counted.
        tracer: Records those that submit jobs, where it is asked to.
    """

    def __init__(self, metrics: Metrics, tracer: Tracer | None = None) -> None:
        self._metrics = metrics
        self._tracer = tracer
        # The children are kept: looking one up by its labels takes longer than counting.
        self._counters: dict[tuple[str, str, str], Counter] = {}
        self._histograms: dict[tuple[str, str, str], Histogram] = {}

    async def watch(self, app: ASGIApp, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Has the application handle one request."""
        status = 0

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        began = time.perf_counter()
        request = _Traced(self._tracer, scope) if self._tracer is not None and _submits(scope) else None
        bound = bind_fields(request_id=scope[REQUEST_ID], **(request.fields if request is not None else {}))
        try:
            await app(scope, receive, send_and_note)  # type: ignore[arg-type]  # a scope with our key
        finally:
            seconds = time.perf_counter() - began
            route = route_of(scope)
            self._count(scope, route, status, seconds)
            if request is not None:
                request.end(scope["method"], route, status)
            if status >= 500 or logger.isEnabledFor(logging.DEBUG):
                _log(scope, status, seconds)
            unbind_fields(bound)

    def _count(self, scope: dict[str, Any], route: str, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        told = str(status) if status else ABORTED
        counter = self._counters.get((route, method, told))
        if counter is None:
            counter = self._counters[route, method, told] = self._metrics.http_requests.labels(route, method, told)
        counter.inc()
        wait = "yes" if b"wait=" in scope["query_string"] else "no"
        histogram = self._histograms.get((route, method, wait))
        if histogram is None:
            labelled = self._metrics.http_request_seconds.labels(route, method, wait)
            histogram = self._histograms[route, method, wait] = labelled
        histogram.observe(seconds)


class _Traced:
    """The server span of one request, and what carries it to the jobs that are submitted within."""

    def __init__(self, tracer: Tracer, scope: dict[str, Any]) -> None:
        self._tracer = tracer
        entered = tracer.enter(_header(scope["headers"], b"traceparent"))
        self._context: SpanContext | None = None
        self._parent: SpanContext | None = None
        if entered is None:
            return
        self._context, self._parent = entered
        self._began_ns = time.time_ns()
        self._token = _TRACEPARENT.set(self._context.traceparent)

    @property
    def fields(self) -> dict[str, str]:
        """What stands on the log lines of the request."""
        return {} if self._context is None else {"trace_id": f"{self._context.trace_id:032x}"}

    def end(self, method: str, route: str, status: int) -> None:
        """Tells of the request, which is over."""
        if self._context is None:
            return
        _TRACEPARENT.reset(self._token)
        self._tracer.put(
            f"{method} {route}",
            self._context,
            self._parent,
            self._began_ns,
            time.time_ns(),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": method, "http.route": route, "http.response.status_code": status},
            error=f"answered {status}" if status >= 500 else None,
        )


def route_of(scope: dict[str, Any]) -> str:
    """Returns the pattern of the route that took a request: `/v1/jobs/{job_id}`."""
    pattern: str | None = scope.get("path_template")
    return UNMATCHED if pattern is None else pattern.replace(":str}", "}").replace(":path}", "}")


def _submits(scope: dict[str, Any]) -> bool:
    return scope["method"] == "POST" and scope["path"].rstrip("/") in _SUBMITTING


def _log(scope: dict[str, Any], status: int, seconds: float) -> None:
    logger.log(
        logging.INFO if status >= 500 else logging.DEBUG,
        "%s %s %d %.1f ms",
        scope["method"],
        scope["path"].encode("unicode_escape").decode("ascii"),  # a line feed in it must not begin a line of ours
        status,
        seconds * 1000,
        extra={"action": Action.REQUEST, "status": status, "ms": round(seconds * 1000, 1)},
    )


def _header(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> str | None:
    for name, value in headers:
        if name == wanted:
            return value.decode("latin-1")
    return None
