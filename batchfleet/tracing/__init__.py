"""One trace from submit to settle, over OpenTelemetry, where an operator asks for it (`BATCHFLEET_OTLP_ENDPOINT`).

A process without it has no `Tracer` (`None`), imports nothing of OpenTelemetry, and does nothing per job. With it, a
job is traced if its submission was sampled: the row then carries the submission's context (`traceparent`), which is
the parent of everything that is told of the job, whichever process or run it comes from::

    POST /v1/jobs                       api        the server span; child of the caller's, if it sent a context
    ├── queue                           worker     from submission to the claim
    ├── run                             worker     one for each claim: a rescued job has several
    │   ├── prepare                     worker
    │   └── settle                      worker
    └── webhook                         scheduler  and so on to whoever is called
    batch                               worker     one for each batch, a trace of its own; linked to each `run` in it
    └── pass                            worker     where a batch took several (a culprit was searched)

Spans are told when they are over, with their times: what is under way holds two numbers, not a live span. `context`
has the values, `tracer` decides and makes ids, `otel` (imported only when needed) sends.
"""

from batchfleet.tracing.context import SpanContext, read_traceparent
from batchfleet.tracing.setup import TracingUnavailableError, setup_tracing
from batchfleet.tracing.tracer import SpanKind, SpanSink, Tracer

__all__ = [
    "SpanContext",
    "SpanKind",
    "SpanSink",
    "Tracer",
    "TracingUnavailableError",
    "read_traceparent",
    "setup_tracing",
]
