"""Sends spans by OTLP over HTTP, with OpenTelemetry's SDK: its batches, its exporter, its `OTEL_EXPORTER_*` variables.

Our spans are over when they are told, and name each other before they are told. So they are made as the SDK's
finished spans at once, and its `Tracer`, which keeps live ones, is left out: that is the larger part of its cost.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, Status, StatusCode, TraceFlags
from opentelemetry.trace import SpanContext as OtelContext
from opentelemetry.trace import SpanKind as OtelKind

from batchfleet import __version__
from batchfleet.tracing.context import SpanContext
from batchfleet.tracing.tracer import Attributes, SpanKind

_TRACES_PATH: Final = "/v1/traces"
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_OK: Final = Status(StatusCode.UNSET)
_KINDS: Final = {kind: OtelKind[kind.name] for kind in SpanKind}
_QUEUE: Final = 32_768
"""Spans that wait to be sent; a collector that is down costs no more memory than these, and then spans."""
_BATCH: Final = 1_024
_DELAY_MS: Final = 1_000
_EXPORT_S: Final = 5.0


class OtlpSink:
    """A `SpanSink` that sends to a collector.

    Args:
        endpoint: `http://host:4318`, or a whole URL with a path of its own.
        resource: What is told of the process.
    """

    def __init__(self, endpoint: str, resource: Mapping[str, str]) -> None:
        self._resource = Resource.create(resource)
        self._scope = InstrumentationScope("batchfleet", __version__)
        exporter = OTLPSpanExporter(endpoint=traces_url(endpoint), timeout=_EXPORT_S)
        self._processor = BatchSpanProcessor(exporter, _QUEUE, _DELAY_MS, _BATCH)

    def put(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        begin_ns: int,
        end_ns: int,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes | None = None,
        links: Sequence[SpanContext] = (),
        error: str | None = None,
    ) -> None:
        """Takes one span; see `SpanSink.put`."""
        span = ReadableSpan(
            name,
            _otel(context),
            None if parent is None else _otel(parent),
            self._resource,
            attributes,
            links=[Link(_otel(link)) for link in links] if links else (),
            kind=_KINDS[kind],
            status=_OK if error is None else Status(StatusCode.ERROR, error),
            start_time=begin_ns,
            end_time=max(begin_ns, end_ns),
            instrumentation_scope=self._scope,
        )
        self._processor.on_end(span)

    def close(self, timeout_s: float) -> None:
        """Sends what is left; an export that hangs, or waits to try again, is left behind after `timeout_s`."""
        thread = threading.Thread(target=self._processor.shutdown, name="otel-shutdown", daemon=True)
        thread.start()
        thread.join(timeout_s)


def traces_url(endpoint: str) -> str:
    """Returns where traces go: the endpoint itself where it has a path, else the one that OTLP names."""
    return endpoint if urlsplit(endpoint).path.strip("/") else endpoint.rstrip("/") + _TRACES_PATH


def _otel(context: SpanContext) -> OtelContext:
    return OtelContext(context.trace_id, context.span_id, is_remote=False, trace_flags=_SAMPLED)
