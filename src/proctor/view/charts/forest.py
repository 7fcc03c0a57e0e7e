"""Factors with their intervals under each other, against the line at which nothing changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from proctor.view.charts.scale import Scale, Tick, nice_step
from proctor.view.formats import clip

WIDTH = 720
_LEFT, _RIGHT, _TOP, _BOTTOM, _LINE = 170, 24, 10, 34, 30
_LETTERS = 22
_WIDEST = 8.0
"""Factors beyond this are drawn at the edge."""


class Factor(NamedTuple):
    """One line of the chart before it is drawn: the bounds are None where there are none."""

    name: str
    value: float
    low: float | None
    high: float | None
    tone: str
    title: str


@dataclass(frozen=True, slots=True)
class Mark:
    """One line, in pixels; `low` and `high` are None where there is no interval."""

    name: str
    y: float
    x: float
    low: float | None
    high: float | None
    tone: str
    title: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, in pixels; at `one` nothing changes."""

    marks: list[Mark]
    ticks: list[Tick]
    one: float
    bottom: float
    height: float
    top: int = _TOP
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    width: int = WIDTH


def forest_chart(factors: Sequence[Factor]) -> Chart | None:
    """The chart, on a logarithmic scale: half as fast is as far from 1 as twice as fast. None without factors."""
    if not factors:
        return None
    reach = max(
        (abs(_place(edge)) for f in factors for edge in (f.value, f.low, f.high) if edge is not None), default=0
    )
    reach = max(reach * 1.1, math.log(1.02))
    across = Scale(-reach, reach, _LEFT, WIDTH - _RIGHT)
    bottom = _TOP + _LINE * len(factors)
    return Chart(
        marks=[_mark(factor, at, across) for at, factor in enumerate(factors)],
        ticks=_ticks(reach, across),
        one=across(0.0),
        bottom=bottom,
        height=bottom + _BOTTOM,
    )


def _mark(factor: Factor, at: int, across: Scale) -> Mark:
    low, high = (None if edge is None else across(_place(edge)) for edge in (factor.low, factor.high))
    y = _TOP + _LINE * (at + 0.5)
    return Mark(clip(factor.name, _LETTERS), y, across(_place(factor.value)), low, high, factor.tone, factor.title)


def _place(factor: float) -> float:
    return math.log(min(_WIDEST, max(1 / _WIDEST, factor)))


def _ticks(reach: float, across: Scale) -> list[Tick]:
    """Round factors on both sides of 1, with room between them."""
    step = nice_step((math.exp(reach) - math.exp(-reach)) / 6)
    first = math.ceil(math.exp(-reach) / step)
    values = [step * at for at in range(first, int(math.exp(reach) / step) + 1)]
    made: list[Tick] = [Tick(across(0.0), "1x")]
    for value in sorted(values, key=lambda v: abs(math.log(v))):
        place = across(math.log(value))
        if all(abs(place - other.at) >= 44 for other in made):
            made.append(Tick(place, f"{value:.4g}x"))
    return sorted(made)
