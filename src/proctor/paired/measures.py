"""Which metrics a task has, and from which columns they follow."""

from __future__ import annotations

import re
from collections.abc import Mapping

from proctor.paired.model import Measure
from proctor.rows.records import BASE_FIELDS
from proctor.spec.task import ClassificationTaskSpec, DrivingTaskSpec, PythonTaskSpec, TaskSpec
from proctor.tasks import Summary
from proctor.tasks.driving_answer import FIELDS

ANSWERED = Measure("answered", "answer", "share")
PARSE_FAILURES = Measure("parse_failures", "parse_error", "share", higher_is_better=False)
COVERAGE = (ANSWERED, PARSE_FAILURES)
"""Of every task; they follow from whether a record has an answer, and whether it could be parsed."""

_BASE = frozenset(field.name for field in BASE_FIELDS)
_NUMBER = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\(.*\))")


def measures_of(
    task: TaskSpec, columns: Mapping[str, str], summaries: list[Summary]
) -> tuple[list[Measure], str | None]:
    """The metrics of a task that can be paired, and the name of the one shown first (None if there is none).

    Args:
        task: the task.
        columns: DuckDB type of the columns that both sides have, by name.
        summaries: what the runs added up; for a task of the user's own, they say what is better.
    """
    if isinstance(task, PythonTaskSpec):
        own = _own(columns, summaries)
        wanted = next((summary.headline for summary in summaries), None)
        names = [measure.name for measure in own]
        more = [measure for measure in COVERAGE if measure.name not in names]
        return [*own, *more], wanted if wanted in names else next(iter(names), None)
    known, headline = _built_in(task)
    return [*known, *COVERAGE], headline


def columns_of(measure: Measure) -> tuple[str, ...]:
    """The columns of the records that a metric follows from."""
    return (measure.column, f"{measure.column}_target") if measure.form == "f1" else (measure.column,)


def _built_in(task: TaskSpec) -> tuple[list[Measure], str]:
    if isinstance(task, DrivingTaskSpec):
        fields = [
            measure
            for field in FIELDS
            for measure in (
                Measure(f"{field}.accuracy", f"{field}_correct", "share"),
                Measure(f"{field}.macro_f1", field, "f1"),
            )
        ]
        distances = [Measure(name, name, "mean", "m", higher_is_better=False) for name in ("ade", "fde")]
        counts = Measure("waypoints.count_match", "waypoints_count_match", "share")
        return [Measure("exact", "exact", "share"), *fields, *distances, counts], "exact"
    if isinstance(task, ClassificationTaskSpec):
        return [Measure("accuracy", "label_correct", "share"), Measure("macro_f1", "label", "f1")], "accuracy"
    return [Measure("accuracy", "correct", "share")], "accuracy"


def _own(columns: Mapping[str, str], summaries: list[Summary]) -> list[Measure]:
    """Boolean and number columns of a task of the user's own; what is better is asked of its own summary."""
    said = {metric.name: metric for summary in summaries for metric in summary.metrics}
    found = []
    for name, kind in columns.items():
        share = kind == "BOOLEAN"
        if name in _BASE or not (share or _NUMBER.fullmatch(kind)):
            continue
        metric = said.get(name)
        better = metric.higher_is_better if metric else True if share else None
        found.append(Measure(name, name, "share" if share else "mean", metric.unit if metric else "", better))
    return found
