"""Where a span stands, and how that is written on the wire (W3C Trace Context, version 00)."""

import re
from dataclasses import dataclass
from typing import Final

_FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_SAMPLED: Final = 0x01


@dataclass(frozen=True, slots=True)
class SpanContext:
    """Names a span in its trace. Only spans that are recorded have one.

    Attributes:
        trace_id: 128 bits, not 0.
        span_id: 64 bits, not 0.
    """

    trace_id: int
    span_id: int

    @property
    def traceparent(self) -> str:
        """Returns it as the header's value, for what happens because of this span."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-01"


@dataclass(frozen=True, slots=True)
class Traceparent:
    """What a header said.

    Attributes:
        sampled: Whether its sender records the trace.
    """

    context: SpanContext
    sampled: bool


def read_traceparent(text: str | None) -> Traceparent | None:
    """Reads a `traceparent`; None where there is none, or one that is malformed (the trace then begins anew)."""
    found = _FORM.fullmatch(text.strip()) if text else None
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    # A later version may have more fields after these; this one has not.
    if version == "ff" or (version == "00" and more is not None):
        return None
    context = SpanContext(int(trace_id, 16), int(span_id, 16))
    if not context.trace_id or not context.span_id:
        return None
    return Traceparent(context, bool(int(flags, 16) & _SAMPLED))
