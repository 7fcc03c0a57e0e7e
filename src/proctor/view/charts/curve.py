"""The learning curve: metrics over checkpoints, each with its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proctor.tasks import Metric, Summary
from proctor.view.charts.scale import Scale, Tick, apart, nice_step
from proctor.view.formats import clip, metric_interval, metric_value, whole

HEIGHT = 300
_WIDTHS = (610, 390)  # of the first chart and of those beside it
_LEFT, _TOP, _BOTTOM, _INSET = 52, 14, 40, 26
_LETTER = 6.9  # pixels
_BOLD = 7.7  # pixels: the headline is called in bold
_LABEL_GAP = 16.0
_Y_TICKS = 5
_MOST_SERIES = 6
_BESIDE = ("answered", "parse_failures")  # in the table, but not what a checkpoint learns


@dataclass(frozen=True, slots=True)
class Point:
    """One checkpoint's value: pixels, and what the tooltip says."""

    x: float
    y: float
    title: str


@dataclass(frozen=True, slots=True)
class Series:
    """One metric: runs of neighbouring points, the band of its intervals, and its label at the end."""

    name: str
    place: int
    runs: list[str]
    bands: list[str]
    points: list[Point]
    label: Tick


@dataclass(frozen=True, slots=True)
class Curve:
    """A chart, in pixels."""

    title: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    series: list[Series]
    width: int
    right: int
    left: int = _LEFT
    bottom: int = HEIGHT - _BOTTOM
    height: int = HEIGHT


def curves(summaries: Mapping[str, Summary]) -> list[Curve]:
    """One chart for the shares (headline first) and one for each unit; none for fewer than two checkpoints."""
    if len(summaries) < 2:
        return []
    charts: list[Curve] = []
    for unit, names in _by_unit(summaries).items():
        lines = {name: [_metric(summary, name) for summary in summaries.values()] for name in names[:_MOST_SERIES]}
        if any(metric is not None for line in lines.values() for metric in line):
            charts.append(_curve(unit, list(summaries), lines, _WIDTHS[bool(charts)]))
    return charts


def _by_unit(summaries: Mapping[str, Summary]) -> dict[str, list[str]]:
    headline = next(iter(summaries.values())).headline
    found: dict[str, list[str]] = {}
    for summary in summaries.values():
        for metric in summary.metrics:
            names = found.setdefault(metric.unit, [])
            if metric.name not in names and (metric.name == headline or _is_learnt(metric)):
                names.append(metric.name)
    return {unit: sorted(names, key=lambda name: name != headline) for unit, names in found.items() if names}


def _is_learnt(metric: Metric) -> bool:
    return metric.name not in _BESIDE and not metric.name.endswith(("macro_f1", "count_match"))


def _metric(summary: Summary, name: str) -> Metric | None:
    for metric in summary.metrics:
        if metric.name == name and metric.value is not None and math.isfinite(metric.value):
            return metric
    return None


def _curve(unit: str, checkpoints: Sequence[str], lines: Mapping[str, list[Metric | None]], width: int) -> Curve:
    known = [metric for line in lines.values() for metric in line if metric is not None]
    top, bottom = _bounds(unit, known)
    right = width - 10 - round(_BOLD * max(len(clip(name, 26)) for name in lines))
    across = Scale(0, len(checkpoints) - 1, _LEFT + _INSET, right - _INSET)
    up = Scale(bottom, top, HEIGHT - _BOTTOM, _TOP)
    in_percent = not unit and top <= 1 and bottom >= 0
    series = [_series(name, place, line, across, up) for place, (name, line) in enumerate(lines.items())]
    return Curve(
        title="share" if in_percent else unit or "value",
        x_ticks=_checkpoint_ticks(checkpoints, across),
        y_ticks=up.ticks(_Y_TICKS, (lambda v: f"{100 * v:.0f} %") if in_percent else (lambda v: f"{v:.4g}")),
        series=_apart([one for one in series if one.points]),
        width=width,
        right=right,
    )


def _checkpoint_ticks(checkpoints: Sequence[str], across: Scale) -> list[Tick]:
    """Names of the checkpoints; of many only so many as find room, the last one always."""
    names = [clip(name, 14) for name in checkpoints]
    room = max(1, int((across.end - across.start) / (_LETTER * max(map(len, names)) + 8)))
    every = -(-(len(names) - 1) // room) or 1
    last = len(names) - 1
    return [Tick(across(i), name) for i, name in enumerate(names) if (last - i) % every == 0]


def _bounds(unit: str, metrics: Sequence[Metric]) -> tuple[float, float]:
    """Top and bottom: shares have the whole scale, others whole ticks from zero (or from below it) upwards."""
    ends = [end for m in metrics for end in (m.value, m.low, m.high) if end is not None and math.isfinite(end)]
    low, high = min(ends), max(ends)
    if not unit and low >= 0 and high <= 1:
        return 1.0, 0.0
    low = min(low, 0.0)
    step = nice_step((high - low or 1.0) / _Y_TICKS)
    return step * max(1, math.ceil(high / step)), step * math.floor(low / step)


def _series(name: str, place: int, line: Sequence[Metric | None], across: Scale, up: Scale) -> Series:
    points, runs, bands = [], [], []
    for run in _runs(line):
        at = [Point(across(i), up(m.value or 0.0), _title(name, m)) for i, m in run]
        points += at
        runs.append(" ".join(f"{point.x},{point.y}" for point in at))
        upper = [(across(i), up(_finite(m.high, m))) for i, m in run]
        lower = [(across(i), up(_finite(m.low, m))) for i, m in reversed(run)]
        bands.append(" ".join(f"{x},{y}" for x, y in [*upper, *lower]))
    last = points[-1] if points else Point(0, 0, "")
    return Series(name, place, runs, bands, points, Tick(last.y, clip(name, 26)))


def _finite(bound: float | None, metric: Metric) -> float:
    return bound if bound is not None and math.isfinite(bound) else metric.value or 0.0


def _runs(line: Sequence[Metric | None]) -> list[list[tuple[int, Metric]]]:
    """Neighbouring checkpoints with a value; a gap starts a new run."""
    runs: list[list[tuple[int, Metric]]] = [[]]
    for i, metric in enumerate(line):
        if metric is not None:
            runs[-1].append((i, metric))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _title(name: str, metric: Metric) -> str:
    return f"{name}: {metric_value(metric)} ({metric_interval(metric)}), n {whole(metric.n)}"


def _apart(series: list[Series]) -> list[Series]:
    """Moves the labels at the ends so that none covers another."""
    places = apart([one.label.at for one in series], _LABEL_GAP, HEIGHT - _BOTTOM)
    return [
        Series(s.name, s.place, s.runs, s.bands, s.points, Tick(at, s.label.text))
        for s, at in zip(series, places, strict=True)
    ]
