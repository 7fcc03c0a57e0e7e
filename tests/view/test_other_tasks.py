"""Reports of tasks without waypoints or confusion, and of a single checkpoint."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyroaring import BitMap64

from proctor.results import Reconciliation, RunDir, reconcile, write_records
from proctor.rows.records import record_schema
from proctor.spec import build_spec
from proctor.tasks.marking import mark
from proctor.tasks.registry import make_task
from proctor.view.formats import NOTHING
from proctor.view.report import write_report
from tests.view.pages import Page

TASKS: list[dict[str, Any]] = [
    {"kind": "classification", "labels": ["cat", "dog"]},
    {"kind": "exact", "prompt": "Which?"},
    {"kind": "regex", "prompt": "Which?", "pattern": r"\w+"},
]


def write_run(root: Path, task_spec: dict[str, Any], answers: list[str | None], exit_code: int = 0) -> Page:
    run = RunDir(root)
    source = {"kind": "jsonl", "path": str(root / "no.jsonl"), "columns": {"target": "y"}}
    engine = {"kind": "scripted", "checkpoints": ["only"]}
    spec = build_spec({"run_dir": str(root), "source": source, "engine": engine, "task": task_spec})
    run.create(spec)
    task = make_task(spec.task, spec.source.columns)
    rows: list[dict[str, Any]] = []
    for row_id, answer in enumerate(answers):
        row = {"row_id": row_id, "checkpoint": "only", "target": '"cat"'}
        if answer is None:
            rows.append({**row, "error_kind": "infer.empty", "error_message": "the answer is blank"})
        else:
            marked = mark(task, answer, "cat")
            rows.append({**row, "answer": answer, "parse_error": marked.parse_error, **marked.scores})
    write_records(run.results, pa.Table.from_pylist(rows, schema=record_schema(task.columns)))
    account = Reconciliation([reconcile(run.results, "only", BitMap64(range(len(answers))))])
    run.write("reconciliation", {**account.to_json(), "exit_code": exit_code})
    with duckdb.connect() as connection:
        run.write("metrics", {"only": asdict(task.summary(run.records(connection), len(answers)))})
    return Page(write_report(run))


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task["kind"])
def test_every_task_has_a_report(tmp_path: Path, task: dict[str, Any]) -> None:
    page = write_run(tmp_path, task, ["cat", "dog", "cat", None])
    assert page.problems == []
    words = page.words()
    assert "accuracy 66.7 % 20.8 to 93.9" in words
    assert "✓ right" in words
    assert "✗ wrong" in words
    assert "waypoints seen from above" not in page.attributes("svg", "aria-label")
    assert "share over checkpoints" not in page.attributes("svg", "aria-label")


def test_too_many_blank_answers_are_not_a_plausible_accuracy(tmp_path: Path) -> None:
    page = write_run(tmp_path, TASKS[0], ["cat"] * 10 + [None] * 30, exit_code=2)
    words = page.words()
    assert "Complete, with too many errors" in words
    assert "75.0 % of only ended in an error, the limit is 1.0 %" in words
    assert "accuracy 100.0 % 72.2 to 100.0 n 10" in words
    assert "infer.empty final 30" in words


def test_no_answers_at_all(tmp_path: Path) -> None:
    page = write_run(tmp_path, TASKS[0], [None, None], exit_code=2)
    assert page.problems == []
    assert "samples" not in page.attributes("section", "id")
    assert f"accuracy {NOTHING} n 0" in page.words()
