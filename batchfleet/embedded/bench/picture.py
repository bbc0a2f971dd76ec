"""A picture of latency against load, as SVG. Pure: no library, a file of a few kilobytes that any browser shows.

Latency has a logarithmic axis, since near the peak it grows by powers of ten and below it a millisecond matters.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 900, 540
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 130, 84, 92
_STYLE = """
text { font: 13px "Helvetica Neue", Arial, "DejaVu Sans", sans-serif; fill: #333 }
.title { font-size: 18px; font-weight: bold; fill: #111 } .small { font-size: 12px; fill: #555 }
.grid { stroke: #e3e3e3 } .axis { stroke: #555 } .peak { stroke: #999; stroke-dasharray: 5 4 }
"""
_COLOURS = ("#0072b2", "#b8860b", "#c1440e")
"""Told apart by people who see few colours, in print by their order and by the names at their ends."""
_DASHES = ("none", "8 4", "2 4")
_STEPS = (1.0, 2.0, 5.0)
_NAME_GAP = 16.0
"""Names at the lines' ends are so far from each other at least."""


class Point(NamedTuple):
    """One measured load.

    Attributes:
        offered: Texts a second.
        share: The same as a share of the peak.
        values: Milliseconds, one for each line; 0 where nothing was answered.
    """

    offered: float
    share: float
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class _Scale:
    """Maps values of an axis to the picture."""

    low: float
    high: float
    begin: float
    end: float
    of: Callable[[float], float] = float

    def __call__(self, value: float) -> float:
        low, high = self.of(self.low), self.of(self.high)
        return self.begin + (self.of(value) - low) / (high - low) * (self.end - self.begin)


def latency_picture(
    points: Sequence[Point], names: Sequence[str], *, peak: float, title: str, notes: Sequence[str]
) -> str:
    """Returns an SVG document.

    Args:
        points: At least one, ascending by load.
        names: Of the lines, for example p50, p90, p99.
        peak: Texts a second of a closed loop.
        title: Its first line.
        notes: Smaller lines under it: machine, build, date.

    Raises:
        ValueError: If there is no point with a latency.
    """
    every = [value for point in points for value in point.values if value > 0]
    if not every:
        raise ValueError("no latency was measured: there is nothing to show")
    ticks = log_ticks(min(every), max(every))
    right = nice_ticks(max(peak, points[-1].offered) * 1.02)
    x = _Scale(0.0, right[-1], _LEFT, _WIDTH - _RIGHT)
    y = _Scale(ticks[0], ticks[-1], _HEIGHT - _BOTTOM, _TOP, math.log10)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_LEFT, 28, title, css="title"),
        *(_text(_LEFT, 48 + 16 * row, note, css="small") for row, note in enumerate(notes)),
        *_axes(x, y, right, ticks, points),
        *_peak(x, y, peak),
        *_lines(x, y, points, names),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def log_ticks(low: float, high: float) -> list[float]:
    """Returns 1, 2, 5, 10, … from at most `low` to at least `high`, two of them or more; both are positive."""
    decade = math.floor(math.log10(low))
    steps = [step * 10.0**power for power in range(decade, math.ceil(math.log10(high)) + 1) for step in _STEPS]
    first = max(index for index, step in enumerate(steps) if step <= low * (1 + 1e-9))
    last = next(index for index, step in enumerate(steps) if step >= high * (1 - 1e-9) and index > first)
    return steps[first : last + 1]


def nice_ticks(high: float, most: int = 8) -> list[float]:
    """Returns 0 and multiples of 1, 2 or 5 times a power of ten, `most` at most, the last at least `high`."""
    size = 10.0 ** math.floor(math.log10(high / most))
    step = next(one * size for one in (*_STEPS, 10.0, 20.0) if math.ceil(high / (one * size)) < most)
    return [step * number for number in range(math.ceil(high / step - 1e-9) + 1)]


def _axes(x: _Scale, y: _Scale, across: Sequence[float], up: Sequence[float], points: Sequence[Point]) -> list[str]:
    bottom, middle = y.begin, (x.begin + x.end) / 2
    parts = []
    for tick in up:
        parts += [_line(x.begin, y(tick), x.end, y(tick), "grid"), _text(x.begin - 8, y(tick) + 4, f"{tick:g}", "end")]
    for tick in across:
        parts += [_line(x(tick), bottom, x(tick), bottom + 5, "axis"), _text(x(tick), bottom + 19, f"{tick:g}")]
    parts += [_text(x(point.offered), bottom + 37, f"{point.share:.0%}", css="small") for point in points]
    parts += [
        _line(x.begin, bottom, x.end, bottom, "axis"),
        _line(x.begin, bottom, x.begin, y.end, "axis"),
        _text(middle, _HEIGHT - 30, "offered load, texts/s, and its share of the closed loop's peak"),
        _text(0, 0, "latency, ms (logarithmic)", turn=(24, (bottom + y.end) / 2)),
    ]
    return parts


def _peak(x: _Scale, y: _Scale, peak: float) -> list[str]:
    return [
        _line(x(peak), y.begin, x(peak), y.end, "peak"),
        _text(x(peak) - 6, y.end + 12, f"peak {peak:.0f}/s", "end", css="small"),
    ]


def _lines(x: _Scale, y: _Scale, points: Sequence[Point], names: Sequence[str]) -> list[str]:
    parts, ends = [], []
    for number, name in enumerate(names):
        colour, dash = _COLOURS[number % len(_COLOURS)], _DASHES[number % len(_DASHES)]
        places = [(x(one.offered), y(one.values[number])) for one in points if one.values[number] > 0]
        path = " ".join(f"{left:.1f},{top:.1f}" for left, top in places)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5" stroke-dasharray="{dash}"/>'
        )
        parts += [f'<circle cx="{left:.1f}" cy="{top:.1f}" r="4" fill="{colour}"/>' for left, top in places]
        last = next(point.values[number] for point in reversed(points) if point.values[number] > 0)
        ends.append((places[-1][1], places[-1][0], f"{name}  {_three_digits(last)} ms", colour))
    lowest = math.inf
    for top, left, words, colour in sorted(ends, reverse=True):  # from the bottom up, apart from each other
        lowest = min(top, lowest - _NAME_GAP)
        parts.append(_text(left + 12, lowest + 4, words, "start", colour=colour))
    return parts


def _three_digits(value: float) -> str:
    digits = max(0, 2 - math.floor(math.log10(value)))
    return f"{value:.{digits}f}"


def _line(left: float, top: float, right: float, bottom: float, css: str) -> str:
    return f'<line x1="{left:.1f}" y1="{top:.1f}" x2="{right:.1f}" y2="{bottom:.1f}" class="{css}"/>'


def _text(
    left: float,
    top: float,
    words: str,
    anchor: str = "",
    *,
    css: str = "",
    colour: str = "",
    turn: tuple[float, float] | None = None,
) -> str:
    anchor = anchor or ("start" if css == "title" or (css == "small" and top < _TOP) else "middle")
    place = f'x="{left:.1f}" y="{top:.1f}"'
    if turn:
        place = f'transform="translate({turn[0]:.1f} {turn[1]:.1f}) rotate(-90)"'
    style = f' style="fill: {colour}; font-weight: bold"' if colour else ""
    return f'<text {place} text-anchor="{anchor}" class="{css}"{style}>{escape(words)}</text>'
