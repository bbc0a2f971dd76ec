"""Decides what is traced, makes the ids, and hands finished spans on."""

import random
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol, TypeAlias

from batchfleet.tracing.context import SpanContext, read_traceparent

Attributes: TypeAlias = Mapping[str, str | int | float | bool]


class SpanKind(Enum):
    """What a span is to its peers, in OpenTelemetry's words."""

    INTERNAL = "internal"
    SERVER = "server"
    CLIENT = "client"
    CONSUMER = "consumer"


class SpanSink(Protocol):
    """Takes finished spans. Never blocks, never raises; callable from any thread."""

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
        """Takes one span.

        Args:
            name: What it did.
            context: Names it.
            parent: Of the same trace; None for the first one.
            begin_ns: Unix time in nanoseconds.
            end_ns: Likewise.
            kind: What it is to its peers.
            attributes: What else is told of it.
            links: Spans of other traces that it has to do with.
            error: What went wrong, if anything.
        """
        ...

    def close(self, timeout_s: float) -> None:
        """Sends what is left, for `timeout_s` at most."""
        ...


class Tracer:
    """The traces of one process. Thread-safe.

    Args:
        sink: Takes the spans.
        sample: Share of the traces that begin here which are recorded.
        generator: Makes ids and decisions.
    """

    def __init__(self, sink: SpanSink, sample: float = 1.0, generator: random.Random | None = None) -> None:
        self._sample = sample
        self._random = random.Random() if generator is None else generator  # noqa: S311 - ids, no secrets
        self.put = sink.put
        """Takes a finished span (`SpanSink.put`)."""
        self._sink = sink

    def enter(self, traceparent: str | None) -> tuple[SpanContext, SpanContext | None] | None:
        """Decides about a request from outside.

        Args:
            traceparent: The caller's header: its decision is respected.

        Returns:
            A span for the request and its parent (if the caller sent one); None where it is not recorded.
        """
        caller = read_traceparent(traceparent)
        if caller is not None:
            return (self.child(caller.context), caller.context) if caller.sampled else None
        return (self.root(), None) if self._random.random() < self._sample else None

    @staticmethod
    def follow(traceparent: str | None) -> SpanContext | None:
        """Returns the context that was stored with a job; None where it is not traced."""
        stored = read_traceparent(traceparent)
        return stored.context if stored is not None and stored.sampled else None

    def child(self, parent: SpanContext) -> SpanContext:
        """Returns a new span in the trace of another one."""
        return SpanContext(parent.trace_id, self._bits(64))

    def root(self) -> SpanContext:
        """Returns the first span of a new trace."""
        return SpanContext(self._bits(128), self._bits(64))

    def close(self, timeout_s: float = 3.0) -> None:
        """Sends what is left, for `timeout_s` at most; what a collector that is down did not take is lost."""
        self._sink.close(timeout_s)

    def _bits(self, count: int) -> int:
        return self._random.getrandbits(count) or 1
