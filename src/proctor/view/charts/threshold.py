"""Values of an ordered knob against the share that differs: where an effect begins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proctor.audit.model import Rate
from proctor.view.charts.scale import Scale, Tick, apart
from proctor.view.formats import clip, percent, whole

WIDTH, HEIGHT = 560, 300
_LEFT, _TOP, _BOTTOM, _INSET = 56, 26, 46, 18
_LETTER = 6.9  # pixels
_LABEL_GAP, _TICK_GAP = 16.0, 30.0


@dataclass(frozen=True, slots=True)
class Point:
    """One value's share: pixels, those of its bounds, and what the tooltip says."""

    x: float
    y: float
    low: float
    high: float
    title: str


@dataclass(frozen=True, slots=True)
class Series:
    """One thing that may differ, over the values."""

    name: str
    place: int
    line: str
    points: list[Point]
    label: Tick


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, in pixels; the threshold lies between `below` and `above`."""

    knob: str
    below: float
    above: float
    caption: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    series: list[Series]
    right: int
    left: int = _LEFT
    top: int = _TOP
    bottom: int = HEIGHT - _BOTTOM
    width: int = WIDTH
    height: int = HEIGHT


def threshold_chart(knob: str, between: tuple[int, int], lines: Mapping[str, Mapping[int, Rate]]) -> Chart | None:
    """The chart of a threshold; None for fewer than two values.

    Args:
        knob: its name.
        between: the largest value without the effect, and the smallest with it.
        lines: for each thing that is compared, the share that is *equal* at each value that was tried.
    """
    lines = {name: {at: rate for at, rate in line.items() if rate.of} for name, line in lines.items()}
    lines = {name: line for name, line in lines.items() if line}
    values = sorted({value for line in lines.values() for value in line} | set(between))
    if not lines or len(values) < 2:
        return None
    right = WIDTH - 12 - round(_LETTER * max(len(name) for name in lines))
    across = Scale(_place(values[0]), _place(values[-1]), _LEFT + _INSET, right - _INSET)
    up = Scale(0, 1, HEIGHT - _BOTTOM, _TOP)
    series = [_series(name, place, line, knob, across, up) for place, (name, line) in enumerate(lines.items())]
    places = apart([one.label.at for one in series], _LABEL_GAP, HEIGHT - _BOTTOM)
    return Chart(
        knob=knob,
        below=across(_place(between[0])),
        above=across(_place(between[1])),
        caption=f"from {between[1]} on",
        x_ticks=_ticks(values, between, across),
        y_ticks=up.ticks(5, lambda v: f"{100 * v:.0f} %"),
        series=[
            Series(s.name, s.place, s.line, s.points, Tick(at, s.label.text))
            for s, at in zip(series, places, strict=True)
        ],
        right=right,
    )


def _place(value: int) -> float:
    """On a logarithmic scale that has a place for 0."""
    return math.log1p(max(0, value))


def _series(name: str, place: int, line: Mapping[int, Rate], knob: str, across: Scale, up: Scale) -> Series:
    points = [_point(f"{name} at {knob}={at}", across(_place(at)), rate, up) for at, rate in sorted(line.items())]
    text = " ".join(f"{point.x},{point.y}" for point in points)
    return Series(name, place, text, points, Tick(points[-1].y, clip(name, 26)))


def _point(name: str, x: float, rate: Rate, up: Scale) -> Point:
    share, low, high = 1 - rate.hits / rate.of, 1 - rate.high, 1 - rate.low
    title = f"{name}: {percent(share)} differ ({100 * low:.1f} to {100 * high:.1f}), n {whole(rate.of)}"
    return Point(x, up(share), up(low), up(high), title)


def _ticks(values: Sequence[int], between: tuple[int, int], across: Scale) -> list[Tick]:
    """The tried values, as far as they have room; those of the threshold first."""
    made: list[Tick] = []
    for value in (between[1], between[0], *values):
        at = across(_place(value))
        if all(abs(at - other.at) >= _TICK_GAP for other in made):
            made.append(Tick(at, str(value)))
    return sorted(made)
