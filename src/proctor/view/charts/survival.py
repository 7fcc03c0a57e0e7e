"""How long answers stay the same: step curves of the first divergence, several arms in one chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proctor.audit.model import Survival
from proctor.view.charts.scale import Scale, Tick, apart
from proctor.view.formats import clip, percent

WIDTH, HEIGHT = 1000, 330
MOST = 6
_LEFT, _TOP, _BOTTOM = 56, 16, 48
_LETTER = 6.9  # pixels
_LABEL_GAP = 16.0
_LONGEST = 34


@dataclass(frozen=True, slots=True)
class Step:
    """Where a curve falls: pixels, and what the tooltip says."""

    x: float
    y: float
    title: str


@dataclass(frozen=True, slots=True)
class Curve:
    """One arm: its step line, the band of its bounds, the steps, and the label at the end."""

    name: str
    place: int
    line: str
    band: str
    steps: list[Step]
    label: Tick


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, in pixels."""

    unit: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    curves: list[Curve]
    right: int
    left: int = _LEFT
    bottom: int = HEIGHT - _BOTTOM
    width: int = WIDTH
    height: int = HEIGHT


def survival_chart(arms: Mapping[str, Survival], end: int, unit: str) -> Chart | None:
    """The chart of arms in which something diverges; None if nothing does.

    Args:
        arms: by name, in order of weight; those beyond the first six are left out.
        end: positions of the longest answer.
        unit: ``token`` or ``character``.
    """
    chosen = {name: survival for name, survival in arms.items() if survival.positions}
    chosen = dict(list(chosen.items())[:MOST])
    if not chosen:
        return None
    last = max(end, *(survival.positions[-1] + 1 for survival in chosen.values()))
    right = WIDTH - 14 - round(_LETTER * max(len(clip(name, _LONGEST)) for name in chosen))
    across, up = Scale(0, last, _LEFT, right), Scale(0, 1, HEIGHT - _BOTTOM, _TOP)
    curves = [_curve(name, place, s, across, up) for place, (name, s) in enumerate(chosen.items())]
    places = apart([curve.label.at for curve in curves], _LABEL_GAP, HEIGHT - _BOTTOM)
    return Chart(
        unit=unit,
        x_ticks=[tick for tick in across.ticks(8, lambda v: f"{v:g}") if float(tick.text).is_integer()],
        y_ticks=up.ticks(5, lambda v: f"{100 * v:.0f} %"),
        curves=[
            Curve(c.name, c.place, c.line, c.band, c.steps, Tick(at, c.label.text))
            for c, at in zip(curves, places, strict=True)
        ],
        right=right,
    )


def _curve(name: str, place: int, found: Survival, across: Scale, up: Scale) -> Curve:
    surviving = _steps(found.positions, found.surviving, across, up)
    high, low = _steps(found.positions, found.high, across, up), _steps(found.positions, found.low, across, up)
    steps = [
        Step(across(at), up(share), f"{name}: {percent(share)} are still the same after position {at}, of {n} so far")
        for at, share, n in zip(found.positions, found.surviving, found.at_risk, strict=True)
    ]
    end = up(found.surviving[-1])
    return Curve(name, place, _line(surviving), _line([*high, *reversed(low)]), steps, Tick(end, clip(name, _LONGEST)))


def _steps(positions: Sequence[int], shares: Sequence[float], across: Scale, up: Scale) -> list[tuple[float, float]]:
    """Corners of a step curve from (0, 1) to the right end."""
    corners, share = [(across(0), up(1.0))], 1.0
    for position, after in zip(positions, shares, strict=True):
        corners += [(across(position), up(share)), (across(position), up(after))]
        share = after
    return [*corners, (across(across.high), up(share))]


def _line(corners: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in corners)
