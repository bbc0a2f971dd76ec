"""A collector: takes traces by OTLP over HTTP, as a real one does, and shows them to the test."""

import gzip
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

WAIT_S = 30.0


class ReceivedSpan:
    """One span as it came over the wire."""

    def __init__(self, span: Span, resource: dict[str, Any]) -> None:
        self.name = span.name
        self.trace_id = span.trace_id.hex()
        self.span_id = span.span_id.hex()
        self.parent_id = span.parent_span_id.hex()
        self.kind = Span.SpanKind.Name(span.kind)
        self.begin_ns = span.start_time_unix_nano
        self.end_ns = span.end_time_unix_nano
        self.attributes = _attributes(span.attributes)
        self.links = {(link.trace_id.hex(), link.span_id.hex()) for link in span.links}
        self.failed = span.status.code == Status.STATUS_CODE_ERROR
        self.resource = resource

    @property
    def place(self) -> tuple[str, str]:
        """What a link to it says."""
        return self.trace_id, self.span_id

    def __repr__(self) -> str:
        return f"<{self.name} {self.span_id} under {self.parent_id or '-'} in {self.trace_id} {self.attributes}>"


class Collector:
    """Listens on a free port of loopback. A context manager.

    Args:
        status: What it answers.
        before: Called before each answer; a test lets it hang with this.
    """

    def __init__(self, status: int = 200, before: Callable[[], object] = lambda: None) -> None:
        self.spans: list[ReceivedSpan] = []
        self.paths: set[str] = set()
        self._changed = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                before()
                collector._take(self.path, gzip.decompress(body) if self.headers["Content-Encoding"] else body)
                self.send_response(status)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_args: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def url(self) -> str:
        """The endpoint."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def named(self, name: str) -> list[ReceivedSpan]:
        """Returns the spans of that name that have come so far."""
        return [span for span in self.spans if span.name == name]

    def wait(self, holds: Callable[[], Any], told: str) -> Any:
        """Waits until `holds` returns something true of the spans that have come, and returns it."""
        with self._changed:
            found = self._changed.wait_for(holds, WAIT_S)
            assert found, f"{told}: {self.spans}"
            return found

    def _take(self, path: str, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        with self._changed:
            self.paths.add(path)
            for group in request.resource_spans:
                resource = _attributes(group.resource.attributes)
                self.spans += [ReceivedSpan(span, resource) for scope in group.scope_spans for span in scope.spans]
            self._changed.notify_all()


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
