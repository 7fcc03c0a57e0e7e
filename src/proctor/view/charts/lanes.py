"""What lasted, over time: a lane for each thing that was at work, with a bar for each stretch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from proctor.view.charts.scale import Scale, Tick
from proctor.view.formats import clip, since

WIDTH = 980
_LEFT, _RIGHT, _LANE, _TOP, _BOTTOM = 250, 24, 22, 8, 24
_LETTERS = 32
_TICKS = 8
_LEAST = 2.0  # pixels
_UNITS = ((7200.0, 3600.0, "h"), (120.0, 60.0, "min"), (0.0, 1.0, "s"))
"""From how many seconds on a unit is used, how long it is, and its name."""


class Span(NamedTuple):
    """A stretch of a lane, in seconds since the epoch; `tone` names its colour, `title` says what it is."""

    lane: str
    begin: float
    end: float
    tone: str
    title: str


class Bar(NamedTuple):
    """A stretch, in pixels."""

    x: float
    width: float
    tone: str
    title: str


@dataclass(frozen=True, slots=True)
class Lane:
    """All stretches of one thing."""

    name: str
    y: float
    bars: list[Bar]


@dataclass(frozen=True, slots=True)
class Lanes:
    """A chart, in pixels; `begin` is the time at its left end, in seconds since the epoch."""

    lanes: list[Lane]
    ticks: list[Tick]
    begin: float
    height: int
    width: int = WIDTH
    left: int = _LEFT


def lanes_chart(spans: Sequence[Span]) -> Lanes | None:
    """The chart of `spans`, lanes in the order in which they begin; None if nothing lasted.

    Times that are not finite are left out; a stretch that ends before it begins has no length.
    """
    known = sorted((s for s in spans if math.isfinite(s.begin) and math.isfinite(s.end)), key=lambda s: s.begin)
    if not known:
        return None
    begin, end = known[0].begin, max(max(span.begin, span.end) for span in known)
    unit, name = next((size, name) for least, size, name in _UNITS if end - begin >= least)
    across = Scale(0.0, max(1.0, end - begin) / unit, _LEFT, WIDTH - _RIGHT)
    lanes: dict[str, Lane] = {}
    for span in known:
        lane = lanes.setdefault(span.lane, Lane(clip(span.lane, _LETTERS), _TOP + _LANE * (len(lanes) + 0.5), []))
        x, until = (across((moment - begin) / unit) for moment in (span.begin, max(span.begin, span.end)))
        told = (
            f"{clip(span.title, 300)}: {since(span.begin - begin)}, {since(max(0.0, span.end - span.begin))[1:]} long"
        )
        lane.bars.append(Bar(x, max(_LEAST, round(until - x, 1)), span.tone, told))
    ticks = across.ticks(_TICKS, lambda value: f"{value:g} {name}")
    return Lanes(list(lanes.values()), ticks, begin, _TOP + _LANE * len(lanes) + _BOTTOM)
