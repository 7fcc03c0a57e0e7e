"""Differences with their intervals under each other, against the line at which nothing changes."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.view.charts.forest import WIDTH, Chart, Factor, Mark
from proctor.view.charts.scale import Scale, nice_step
from proctor.view.formats import clip

_LEFT, _RIGHT, _TOP, _BOTTOM, _LINE = 170, 24, 10, 34, 24
_LETTERS = 22
_LEAST = 0.5
"""The scale reaches at least so many points to each side, so that no noise fills it."""


def difference_chart(differences: Sequence[Factor]) -> Chart | None:
    """The chart, linear and as far to the left as to the right. None without differences.

    Args:
        differences: in points of a hundred; `one` of the chart is then where the difference is 0.
    """
    if not differences:
        return None
    edges = [edge for d in differences for edge in (d.value, d.low, d.high) if edge is not None]
    reach = max(_LEAST, 1.1 * max(abs(edge) for edge in edges))
    across = Scale(-reach, reach, _LEFT, WIDTH - _RIGHT)
    bottom = _TOP + _LINE * len(differences)
    step = nice_step(2 * reach / 8)
    digits = 0 if step >= 1 else 1 if step >= 0.1 else 2
    return Chart(
        marks=[_mark(difference, at, across) for at, difference in enumerate(differences)],
        ticks=across.ticks(8, lambda value: f"{value + 0.0:+.{digits}f}" if abs(value) > step / 2 else "0"),
        one=across(0.0),
        bottom=bottom,
        height=bottom + _BOTTOM,
    )


def _mark(difference: Factor, at: int, across: Scale) -> Mark:
    low, high = (None if edge is None else across(edge) for edge in (difference.low, difference.high))
    y = _TOP + _LINE * (at + 0.5)
    return Mark(
        clip(difference.name, _LETTERS), y, across(difference.value), low, high, difference.tone, difference.title
    )
