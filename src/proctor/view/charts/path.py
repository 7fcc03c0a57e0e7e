"""Waypoints seen from above: the car at the bottom, metres ahead upwards, metres to the right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from proctor.view.charts.scale import Scale, Tick, nice_step

Points = Sequence[Sequence[float]]
"""(lateral, ahead) in metres."""

SIZE = 226
_MARGIN, _AXIS = 10, 26
_ROOM = 1.15
_LEAST_METRES = 2.0
_MOST_TIMES = 3.0  # an answer may stretch the view so many times beyond the target's


@dataclass(frozen=True, slots=True)
class Mark:
    """A waypoint in pixels; `outside` when it lies beyond the view and was moved to its edge."""

    x: float
    y: float
    outside: bool
    title: str


@dataclass(frozen=True, slots=True)
class Path:
    """A chart, in pixels; the car stands at (`car_x`, `car_y`)."""

    target: list[Mark]
    answer: list[Mark]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    car_x: float
    car_y: float
    size: int = SIZE
    left: int = _AXIS
    bottom: int = SIZE - _AXIS + _MARGIN

    @property
    def errors(self) -> list[tuple[Mark, Mark]]:
        """Waypoints of the same position on both sides: the distances that ADE is the mean of."""
        return list(zip(self.target, self.answer, strict=False))


def path(answer: Points, target: Points) -> Path:
    """The chart of an answer's waypoints beside the target's; both have at least one point or are empty."""
    metres = _view(answer, target)
    left, right, top, bottom = _AXIS, SIZE - _MARGIN, _MARGIN, SIZE - _AXIS + _MARGIN
    across = Scale(-metres / 2, metres / 2, left, right)
    up = Scale(0, metres, bottom, bottom - (right - left))
    step = nice_step(metres / 4)
    ahead = [i * step for i in range(int(metres / step + 1e-9) + 1) if up(i * step) >= top]
    sideways = [i * step for i in range(-int(metres / 2 / step), int(metres / 2 / step) + 1)]
    return Path(
        target=[_mark(point, across, up, "target") for point in target],
        answer=[_mark(point, across, up, "answer") for point in answer],
        x_ticks=[Tick(across(v), f"{v:g}") for v in sideways],
        y_ticks=[Tick(up(v), f"{v:g}") for v in ahead],
        car_x=across(0),
        car_y=up(0),
    )


def _view(answer: Points, target: Points) -> float:
    """Side of the square view in metres: all of the target, and of the answer what is not absurdly far."""
    wanted = max(_extent(target), _LEAST_METRES)
    said = _extent(answer)
    return _ROOM * (max(wanted, min(said, _MOST_TIMES * wanted)) if target else max(said, _LEAST_METRES))


def _extent(points: Points) -> float:
    return max((max(2 * abs(lateral), ahead) for lateral, ahead in points), default=0.0)


def _mark(point: Sequence[float], across: Scale, up: Scale, whose: str) -> Mark:
    lateral, ahead = point
    inside_x = min(max(lateral, across.low), across.high)
    inside_y = min(max(ahead, up.low), up.high)
    outside = not (math.isclose(inside_x, lateral) and math.isclose(inside_y, ahead))
    return Mark(across(inside_x), up(inside_y), outside, told_point(whose, lateral, ahead))


def told_point(whose: str, lateral: float, ahead: float) -> str:
    """A waypoint in words."""
    return f"{whose}: {lateral:+.2f} m to the right, {ahead:.2f} m ahead"
