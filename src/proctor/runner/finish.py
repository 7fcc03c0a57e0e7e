"""Last stage: marks the answers and writes the records. What it returns to the driver are counts."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from proctor.results import write_attempts, write_records
from proctor.rows import ErrorKind
from proctor.rows.records import record_schema
from proctor.runner.blocks import TALLY
from proctor.runner.patience import patience
from proctor.tasks import Task
from proctor.tasks.marking import mark


@dataclass(frozen=True, slots=True)
class Desk:
    """Where a block's records go and what every record of it says."""

    run_root: str
    checkpoint: str
    sweep: int
    task: Task


def finish(block: pa.Table, *, desk: Desk) -> pa.Table:
    """Marks and writes a block of rows that came from the engine.

    Records with a final outcome go to ``results/``; retryable errors go to ``attempts/`` and leave their rows
    unanswered, so that the next sweep has them. An answer whose marking failed is kept there too.
    """
    schema = record_schema(desk.task.columns)
    records = [_record(row, desk) for row in block.to_pylist()]
    final = [r for r in records if not _retryable(r)]
    again = [r for r in records if _retryable(r)]
    root = Path(desk.run_root)
    if final:
        write_records(root / "results", pa.Table.from_pylist(final, schema=schema))
    history = again + [{**r, "answer": r["unmarked"]} for r in final if "unmarked" in r]
    if history:
        write_attempts(root / "attempts", pa.Table.from_pylist(history, schema=schema))
    return _tally(final, again)


def _record(row: dict[str, Any], desk: Desk) -> dict[str, Any]:
    record = {
        **row,
        "checkpoint": desk.checkpoint,
        "sweep": desk.sweep,
        "finished_at": datetime.now(UTC),
        "output_tokens": None if row["token_ids"] is None else len(row["token_ids"]),
    }
    if row["error_kind"] is None:
        target = None if row["target"] is None else json.loads(row["target"])
        with patience():
            marks = mark(desk.task, row["answer"], target)
        record |= {**marks.scores, "parse_error": marks.parse_error}
        if marks.failure is not None:
            record |= {
                "answer": None,
                "unmarked": row["answer"],
                "error_kind": marks.failure.kind.value,
                "error_message": f"{marks.failure.message}; the answer was {row['answer'][:200]!r} (whole: attempts/)",
            }
    return record


def _retryable(record: dict[str, Any]) -> bool:
    return record["error_kind"] is not None and ErrorKind(record["error_kind"]).retryable


def _tally(final: list[dict[str, Any]], again: list[dict[str, Any]]) -> pa.Table:
    errors = Counter(r["error_kind"] for r in final if r["error_kind"] is not None)
    tally = {
        "rows": len(final) + len(again),
        "answered": sum(r["error_kind"] is None for r in final),
        "output_tokens": sum(r["output_tokens"] or 0 for r in final),
        "errors": json.dumps(errors),
        "retries": json.dumps(Counter(r["error_kind"] for r in again)),
    }
    return pa.Table.from_pylist([tally], schema=TALLY)
