"""Makes run directories such as runs leave behind, from answers to plain questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from proctor.results import Reconciliation, RunDir, reconcile, write_records, write_tombstones
from proctor.rows.records import record_schema
from proctor.spec import build_spec
from proctor.storage.connect import DEFAULT_OPTIONS, StorageOptions
from proctor.tasks.marking import mark
from proctor.tasks.registry import make_task

EXACT: dict[str, Any] = {"kind": "exact", "prompt": "?"}
WHEN = datetime(2026, 11, 1, tzinfo=UTC)

Answer = str | None | tuple[str, str]
"""A text, None for a row without a record, or (error kind, message); the kind ``lost`` makes a tombstone."""


def make_run(
    place: Path | str,
    checkpoints: Mapping[str, Sequence[Answer]],
    *,
    task: Mapping[str, Any] = EXACT,
    targets: Sequence[Any] | None = None,
    samples: Sequence[str | None] | None = None,
    fingerprint: str | None = "f",
    order: Sequence[int] | None = None,
    parts: int = 1,
    closed: bool = True,
    options: StorageOptions = DEFAULT_OPTIONS,
) -> RunDir:
    """A run with one answer a row for each checkpoint; the right answer is ``yes`` unless `targets` says otherwise."""
    run = RunDir(place, options)
    spec = build_spec(
        {
            "run_dir": str(place),
            "source": {"kind": "jsonl", "path": "rows.jsonl", "columns": {"target": "target"}},
            "engine": {"kind": "scripted", "checkpoints": list(checkpoints)},
            "task": dict(task),
        }
    )
    run.create(spec)
    made = make_task(spec.task, spec.source.columns)
    schema = record_schema(made.columns)
    rows = max((len(answers) for answers in checkpoints.values()), default=0)
    if fingerprint is not None:
        run.write("source", {"fingerprint": fingerprint, "rows": rows})
    ledgers, metrics = [], {}
    for name, answers in checkpoints.items():
        records, lost = [], BitMap64()
        for row in order if order is not None else range(len(answers)):
            answer = answers[row]
            target = "yes" if targets is None else targets[row]
            sample = f"s{row}" if samples is None else samples[row]
            if isinstance(answer, tuple) and answer[0] == "lost":
                lost.add(row)
            elif answer is not None:
                records.append(_record(made, name, row, sample, answer, target))
        for part in range(parts):
            write_records(run.results, pa.Table.from_pylist(records[part::parts], schema=schema))
        if lost:
            write_tombstones(run.folder, name, lost, schema, sweep=1)
        ledgers.append(reconcile(run.results, name, BitMap64(range(rows))))
        if records:
            with duckdb.connect() as connection:
                metrics[name] = asdict(made.summary(run.records(connection, name), rows))
    if closed:
        account = Reconciliation(ledgers)
        run.write("reconciliation", {**account.to_json(), "exit_code": 0 if account.complete else 3})
        run.write("metrics", metrics)
    return run


def answers(right: Sequence[bool]) -> list[Answer]:
    """``yes`` for right, ``no`` for wrong."""
    return ["yes" if each else "no" for each in right]


def drawn(seed: int, rows: int, share: float) -> list[bool]:
    """Right with a probability of `share` each."""
    return [bool(right) for right in np.random.default_rng(seed).random(rows) < share]


def vary(right: Sequence[bool], seed: int, share: float, pick: Callable[[bool], bool] = lambda _: True) -> list[bool]:
    """`right`, with a share of those that `pick` names turned round."""
    turn = np.random.default_rng(seed).random(len(right)) < share
    return [not one if flip and pick(one) else one for one, flip in zip(right, turn, strict=True)]


def _record(task: Any, checkpoint: str, row: int, sample: str | None, answer: Answer, target: Any) -> dict[str, Any]:
    import json

    record: dict[str, Any] = {
        "row_id": row,
        "checkpoint": checkpoint,
        "sample_id": sample,
        "finished_at": WHEN,
        "target": None if target is None else json.dumps(target),
        "sweep": 1,
    }
    if isinstance(answer, tuple):
        return {**record, "error_kind": answer[0], "error_message": answer[1]}
    assert answer is not None
    marked = mark(task, answer, target)
    return {**record, "answer": answer, "parse_error": marked.parse_error, **marked.scores}
