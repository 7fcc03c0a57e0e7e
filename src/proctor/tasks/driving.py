"""Task ``driving``: road surface, curvature, obstacle and waypoints from camera frames.

Distances are Euclidean, in metres. ADE is the mean distance between waypoints of the same position, FDE the distance
between the last waypoint of the answer and the last of the target. When the counts differ, ADE compares the waypoints
that both sides have and FDE still compares both ends, so a path that stops short pays for it there; ``exact`` is false,
and the share of rows with equal counts is a metric of its own, ``waypoints.count_match``, to be read beside ADE.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from proctor.rows import Prompt, Sample
from proctor.spec.source import ColumnsSpec
from proctor.spec.task import DrivingTaskSpec
from proctor.tasks import summaries
from proctor.tasks.base import ParseError, Scores, Summary
from proctor.tasks.driving_answer import FIELDS, DrivingAnswer, Waypoints, answer_of, read_answer
from proctor.tasks.prompting import Prompting
from proctor.tasks.targets import column_target

if TYPE_CHECKING:
    import duckdb

QUESTION = "Describe the road and plan the path."
SAME_POINT_METRES = 1e-6
"""Waypoints closer than this are the same: far below what an answer can write, far above rounding."""

_POINTS = pa.list_(pa.list_(pa.float64()))
_COLUMNS: dict[str, pa.DataType] = {
    **{
        name: kind
        for field in FIELDS
        for name, kind in ((field, pa.string()), (f"{field}_target", pa.string()), (f"{field}_correct", pa.bool_()))
    },
    "waypoints": _POINTS,
    "waypoints_target": _POINTS,
    "waypoints_count_match": pa.bool_(),
    "ade": pa.float64(),
    "fde": pa.float64(),
    "exact": pa.bool_(),
}


@dataclass(frozen=True, slots=True)
class DrivingTask:
    """See the module's text. Targets are JSON objects (or their text) as `proctor.tasks.driving_answer` describes."""

    prompting: Prompting
    target_column: str | None = None

    @classmethod
    def of(cls, spec: DrivingTaskSpec, columns: ColumnsSpec) -> DrivingTask:
        """The task that `spec` describes."""
        return cls(Prompting.of(spec, columns, QUESTION), columns.target)

    @property
    def columns(self) -> Mapping[str, pa.DataType]:
        """Prediction, target and score of each field; waypoints as (lateral, ahead) in metres; ``ade``, ``fde``."""
        return _COLUMNS

    def prompt(self, sample: Sample) -> Prompt:
        """The row's frames, then the question."""
        return self.prompting.prompt(sample)

    def target(self, sample: Sample) -> Any:
        """The row's target; JSON text is decoded.

        Raises:
            ValueError: the column is missing, or its text is not JSON.
        """
        value = column_target(sample, self.target_column)
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except json.JSONDecodeError as error:
            raise ValueError(f"the target is not JSON: {error}") from error

    def parse(self, text: str) -> DrivingAnswer:
        """Reads an answer."""
        return read_answer(text)

    def score(self, parsed: DrivingAnswer, target: Any) -> Scores:
        """Compares an answer with its target, field by field.

        Raises:
            ValueError: the target does not have the JSON form.
        """
        said: Scores = {field: getattr(parsed, field) for field in FIELDS}
        said["waypoints"] = [list(point) for point in parsed.waypoints]
        if target is None:
            return said
        try:
            truth = answer_of(target)
        except ParseError as error:
            raise ValueError(f"the target: {error}") from error
        return said | _compared(parsed, truth)

    def summary(self, records: duckdb.DuckDBPyRelation, expected: int) -> Summary:
        """Share exact, accuracy and macro-F1 of each field, ADE and FDE."""
        confusions = [summaries.confusion_of(records, field, labels) for field, labels in FIELDS.items()]
        per_field = [m for c in confusions for m in summaries.agreement(c, expected, prefix=f"{c.field}.")]
        metrics = (
            summaries.share_of(records, "exact", "exact", expected),
            *per_field,
            summaries.mean_of(records, "ade", "ade", expected, unit="m"),
            summaries.mean_of(records, "fde", "fde", expected, unit="m"),
            summaries.share_of(records, "waypoints.count_match", "waypoints_count_match", expected),
            *summaries.coverage(records, expected),
        )
        return Summary("exact", metrics, tuple(confusions))


def _compared(answer: DrivingAnswer, truth: DrivingAnswer) -> Scores:
    marks: Scores = {f"{field}_target": getattr(truth, field) for field in FIELDS}
    right = {f"{field}_correct": getattr(answer, field) == getattr(truth, field) for field in FIELDS}
    same_count = len(answer.waypoints) == len(truth.waypoints)
    distances = _distances(answer.waypoints, truth.waypoints)
    return {
        **marks,
        **right,
        "waypoints_target": [list(point) for point in truth.waypoints],
        "waypoints_count_match": same_count,
        "ade": sum(distances) / len(distances),
        "fde": math.dist(answer.waypoints[-1], truth.waypoints[-1]),
        "exact": all(right.values()) and same_count and max(distances) < SAME_POINT_METRES,
    }


def _distances(one: Waypoints, other: Waypoints) -> list[float]:
    """Distances in metres over the positions that both have (at least one)."""
    return [math.dist(a, b) for a, b in zip(one, other, strict=False)]
