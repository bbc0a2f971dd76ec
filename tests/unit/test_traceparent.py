"""W3C Trace Context as it is read and written, and who is sampled."""

import random

import pytest

from batchfleet.tracing import SpanContext, Tracer, read_traceparent

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"


class Nowhere:
    """A sink that takes everything and sends nothing."""

    def put(self, *_args: object, **_more: object) -> None:
        """Takes a span."""

    def close(self, timeout_s: float) -> None:
        """Has nothing to send."""


@pytest.mark.parametrize(
    ("text", "sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"  00-{TRACE}-{SPAN}-01 ", True),
        (f"01-{TRACE}-{SPAN}-01", True),
        (f"cc-{TRACE}-{SPAN}-01-what-comes-later", True),
    ],
)
def test_a_valid_header_is_read(text: str, sampled: bool) -> None:
    found = read_traceparent(text)

    assert found is not None
    assert (found.context, found.sampled) == (SpanContext(int(TRACE, 16), int(SPAN, 16)), sampled)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "00",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-٠١",
    ],
)
def test_a_malformed_header_is_none(text: str | None) -> None:
    assert read_traceparent(text) is None


def test_what_is_written_is_read_again() -> None:
    tracer = Tracer(Nowhere())
    context = tracer.root()

    assert read_traceparent(context.traceparent) is not None
    assert tracer.follow(context.traceparent) == context
    assert tracer.follow(f"00-{TRACE}-{SPAN}-00") is None
    assert tracer.follow(None) is None


@pytest.mark.parametrize("sample", [0.0, 0.25, 1.0])
def test_traces_that_begin_here_are_sampled(sample: float) -> None:
    tracer = Tracer(Nowhere(), sample, random.Random(7))

    kept = sum(tracer.enter(None) is not None for _ in range(4_000)) / 4_000

    assert kept == pytest.approx(sample, abs=0.03)


@pytest.mark.parametrize("sample", [0.0, 1.0])
def test_the_caller_has_decided(sample: float) -> None:
    tracer = Tracer(Nowhere(), sample)

    entered = tracer.enter(f"00-{TRACE}-{SPAN}-01")

    assert entered is not None
    assert entered[1] == SpanContext(int(TRACE, 16), int(SPAN, 16))
    assert entered[0].trace_id == int(TRACE, 16)
    assert entered[0].span_id != int(SPAN, 16)
    assert tracer.enter(f"00-{TRACE}-{SPAN}-00") is None
