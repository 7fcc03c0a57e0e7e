"""The learning curve: one metric over checkpoints, each beside the one before it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from proctor.paired.f1 import f1_change
from proctor.paired.measures import measures_of
from proctor.paired.model import Change, Measure
from proctor.paired.pairing import Plan, lay_pairs, lay_side
from proctor.paired.shares import mean_change
from proctor.paired.sides import Given, Side, same_data, same_rows
from proctor.paired.values import summary_of
from proctor.paired.workbench import Workbench, told_of, workbench
from proctor.results.parts import parts_of
from proctor.rows import UserError
from proctor.tasks import Metric, Summary

Order = Literal["number", "given"]


@dataclass(frozen=True, slots=True)
class Point:
    """One checkpoint.

    Attributes:
        label: what it is called among the others.
        value: the metric; None where the checkpoint has none.
        change: what became of it since the point before, over the rows that both have; None where that cannot be said.
        summary: all its metrics.
        note: why something is missing.
    """

    label: str
    value: Metric | None
    change: Change | None = None
    summary: Summary | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """Points in their order.

    Attributes:
        metric: its name.
        order: ``number`` if they are in the order of the numbers in their names.
    """

    metric: str
    order: Order
    points: list[Point] = field(default_factory=list)

    @property
    def best(self) -> Point | None:
        """The point with the best value; None without any, or where nobody said what is better."""
        known = [point for point in self.points if point.value is not None and point.value.value is not None]
        if not known:
            return None
        pick = max if known[0].value is None or known[0].value.higher_is_better else min
        return pick(known, key=lambda point: (point.value.value if point.value else None) or 0.0)


def learning_curve(runs: Sequence[Given], metric: str | None, order: Order) -> LearningCurve:
    """Reads every checkpoint of `runs`.

    Args:
        runs: in the order given.
        metric: None is the headline of the task.
        order: ``number``: by the numbers in the names of the checkpoints, if every one has a number and no two the
            same; else as given.

    Raises:
        UserError: the runs are of different tasks, there is no such metric, or records cannot be read.
    """
    sides, by = ordered([side for run in runs for side in run.sides], order)
    kinds = sorted({side.spec.task.kind for side in sides})
    if len(kinds) > 1:
        raise UserError(f"marked by different tasks: {', '.join(kinds)}", where="proctor curve")
    with workbench() as bench:
        return _walked(bench, sides, metric, by)


def ordered(sides: Sequence[Side], order: Order) -> tuple[list[Side], Order]:
    """The sides in order, labelled so that none is called as another, and which order that is."""
    labelled = _labelled(sides)
    steps = [_step(side.checkpoint) or _step(side.label) for side in labelled]
    if order == "given" or None in steps or len(set(steps)) < len(steps):
        return labelled, "given"
    pairs = sorted(zip(steps, labelled, strict=True), key=lambda pair: pair[0] or ())
    return [side for _, side in pairs], "number"


def _step(name: str) -> tuple[int, ...] | None:
    """The numbers in a name, in their order: (3, 200) for ``epoch-3-step-200``."""
    return tuple(int(digits) for digits in re.findall(r"\d+", name)) or None


def _labelled(sides: Sequence[Side]) -> list[Side]:
    for name in (lambda s: s.checkpoint, lambda s: s.label.rpartition(":")[0], lambda s: s.label, lambda s: s.where):
        labels = [name(side) for side in sides]
        if len(set(labels)) == len(labels):
            return [replace(side, label=label) for side, label in zip(sides, labels, strict=True)]
    raise UserError("the same checkpoint of the same run is there twice", where="proctor curve")


def _walked(bench: Workbench, sides: Sequence[Side], metric: str | None, by: Order) -> LearningCurve:
    points: list[Point] = []
    name = metric
    before: Side | None = None
    for side in sides:
        if not parts_of(side.run.results, side.checkpoint):
            points.append(Point(side.label, None, note="no records yet"))
            continue
        bench.clear("now")
        types = bench.lay(side, "now")
        summary = summary_of(bench, side, "now")
        measures, headline = measures_of(side.spec.task, types, [summary] if summary else [])
        name = name or (summary.headline if summary else headline)
        measure = next((each for each in measures if each.name == name), None)
        value = next((each for each in summary.metrics if each.name == name), None) if summary else None
        change, note = _since(bench, before, side, measure)
        points.append(Point(side.label, value, change, summary, note))
        before = side if measure is not None else None
    _check_known(name, points)
    return LearningCurve(name or "", by, points)


def _since(bench: Workbench, before: Side | None, side: Side, measure: Measure | None) -> tuple[Change | None, str]:
    """The change since the side before, whose table is ``side_before``; afterwards that is the table of this side."""
    if measure is None:
        return None, "rows do not have this metric one by one"
    plan = Plan(by_sample=False, measures=[measure], headline=None)
    with told_of(side):
        lay_side(bench, plan, "now", "side_now")
    change, note = None, ""
    if before is not None:
        same = same_rows(before, side)
        which = "rows" if same_data(before, side) else "source"
        note = "" if same else f"not the {which} of {before.label}"
        if same:
            lay_pairs(bench, plan, "side_before", "side_now")
            change = (f1_change if measure.form == "f1" else mean_change)(bench, measure, 0, clustered=False)
    bench.connection.execute("drop table if exists side_before")
    bench.connection.execute("alter table side_now rename to side_before")
    return change, note


def _check_known(name: str | None, points: Sequence[Point]) -> None:
    summaries = [point.summary for point in points if point.summary is not None]
    known = dict.fromkeys(metric.name for summary in summaries for metric in summary.metrics)
    if not points or all(point.summary is None for point in points):
        raise UserError("no checkpoint has metrics yet", where="proctor curve")
    if name not in known:
        raise UserError(f"no metric {name!r}", where="--metric", fix=f"one of {', '.join(known)}")
