"""Builds records the way a run does: each answer is marked, and the marks become a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from proctor.rows import Sample
from proctor.rows.records import record_schema
from proctor.tasks import Metric, Summary, Task
from proctor.tasks.marking import mark


def sample(row_id: int = 0, images: Sequence[bytes] = (), **fields: Any) -> Sample:
    return Sample(row_id=row_id, sample_id=None, images=tuple(images), fields=fields)


def records(task: Task, rows: Iterable[tuple[str | None, Any]]) -> pa.Table:
    """One record for each (answer, target); an answer of None is a row with an error."""
    lines = []
    for row_id, (answer, target) in enumerate(rows):
        line: dict[str, Any] = {"row_id": row_id, "checkpoint": "a"}
        if answer is None:
            line |= {"error_kind": "infer.empty", "error_message": "no text"}
        else:
            marked = mark(task, answer, target)
            assert marked.failure is None, marked.failure
            line |= {"answer": answer, "parse_error": marked.parse_error, **marked.scores}
        lines.append(line)
    return pa.Table.from_pylist(lines, schema=record_schema(task.columns))


def summarise(task: Task, table: pa.Table, expected: int | None = None) -> tuple[Summary, dict[str, Metric]]:
    """The summary of a table of records, and its metrics by name."""
    with duckdb.connect() as connection:
        summary = task.summary(connection.from_arrow(table), table.num_rows if expected is None else expected)
    return summary, {metric.name: metric for metric in summary.metrics}
