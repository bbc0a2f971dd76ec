"""The picture is SVG, shows every point, and its axes hold all of them."""

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.embedded.bench.picture import Point, latency_picture, log_ticks, nice_ticks

SVG = "{http://www.w3.org/2000/svg}"
NAMES = ("p50", "p90", "p99")


@given(low=st.floats(1e-3, 1e5), factor=st.floats(1.0, 1e4))
def test_logarithmic_ticks_hold_all_values(low: float, factor: float) -> None:
    ticks = log_ticks(low, low * factor)

    assert ticks[0] <= low * 1.001
    assert ticks[-1] >= low * factor * 0.999
    assert len(ticks) >= 2
    assert ticks == sorted(set(ticks))


@given(high=st.floats(1e-2, 1e6))
def test_plain_ticks_begin_at_nothing_and_are_few(high: float) -> None:
    ticks = nice_ticks(high)

    assert ticks[0] == 0
    assert ticks[-1] >= high * 0.999
    assert 2 <= len(ticks) <= 9


@given(
    points=st.lists(
        st.tuples(st.floats(0.01, 5.0), st.tuples(*[st.floats(0.01, 1e5)] * 3)),
        min_size=1,
        max_size=6,
        unique_by=lambda one: one[0],
    )
)
def test_every_point_is_inside(points: list[tuple[float, tuple[float, float, float]]]) -> None:
    measured = [Point(share * 300, share, values) for share, values in sorted(points)]

    drawn = latency_picture(measured, NAMES, peak=300.0, title="a < b", notes=["& more"])
    picture = ET.fromstring(drawn)  # noqa: S314 - our own

    circles = picture.findall(f"{SVG}circle")
    assert len(circles) == 3 * len(points)
    assert all(0 < float(circle.attrib["cx"]) < 900 and 0 < float(circle.attrib["cy"]) < 540 for circle in circles)
    words = [text.text or "" for text in picture.iter(f"{SVG}text")]
    assert {"a < b", "& more"} <= set(words)
    assert all(any(word.startswith(f"{name}  ") for word in words) for name in NAMES)
    assert any("ms" in word for word in words)
    assert any("texts/s" in word for word in words)


def test_an_empty_point_leaves_a_gap_and_none_at_all_is_an_error() -> None:
    points = [Point(100.0, 0.5, (1.0, 2.0, 3.0)), Point(200.0, 1.0, (0.0, 0.0, 0.0))]

    assert latency_picture(points, NAMES, peak=200.0, title="", notes=[]).count("<circle") == 3
    with pytest.raises(ValueError, match="nothing to show"):
        latency_picture(points[1:], NAMES, peak=200.0, title="", notes=[])
