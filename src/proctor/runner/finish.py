"""Last stage: marks the answers and writes the records. What it returns to the driver are counts."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from proctor.results import write_attempts, write_records
from proctor.rows import ErrorKind, Failure, told
from proctor.rows.records import record_schema
from proctor.runner.blocks import TALLY
from proctor.runner.hub import HubClient
from proctor.runner.metrics import count_rows, count_tokens
from proctor.runner.patience import patience
from proctor.storage.folder import Place, open_folder
from proctor.tasks import Task
from proctor.tasks.marking import mark


@dataclass(frozen=True, slots=True)
class Desk:
    """Where a block's records go, and what it takes to make them.

    Attributes:
        row_seconds: longest time over one row.
        run: the run directory.
        alone: given when blocks are one row, which is then traced and answers for all that goes wrong.
    """

    run: Place
    checkpoint: str
    sweep: int
    task: Task
    row_seconds: float
    alone: HubClient | None = None


def finish(block: pa.Table, *, desk: Desk) -> pa.Table:
    """Marks and writes a block of rows that came from the engine.

    Records with a final outcome go to ``results/``; retryable errors go to ``attempts/`` and leave their rows
    unanswered, so that the next sweep has them. An answer whose marking failed is kept there too.
    """
    rows = block.to_pylist()
    if desk.alone is None:
        return _write([_record(row, desk) for row in rows], desk)
    (row,) = rows
    with desk.alone.inside(row["row_id"], "score"):
        try:
            record = _record(row, desk)
        except Exception as error:
            record = _unmarked(_base(row, desk), Failure(ErrorKind.SCORE_FAILED, told(error)))
    return _write([record], desk)


def _write(records: list[dict[str, Any]], desk: Desk) -> pa.Table:
    """Writes records where they belong. Nothing of the block counts when that is not possible."""
    schema = record_schema(desk.task.columns)
    final = [r for r in records if not _retryable(r)]
    again = [r for r in records if _retryable(r)]
    run = open_folder(desk.run)
    history = again + [{**r, "answer": r["unmarked"]} for r in final if "unmarked" in r]
    try:
        if history:
            write_attempts(run.below("attempts"), pa.Table.from_pylist(history, schema=schema))
        if final:
            write_records(run.below("results"), pa.Table.from_pylist(final, schema=schema))
    except OSError as error:
        return _tally([], [], trouble=f"cannot write to {run.location}: {error.strerror or error}")
    _count(desk.checkpoint, records)
    return _tally(final, again)


def _record(row: dict[str, Any], desk: Desk) -> dict[str, Any]:
    record = _base(row, desk)
    if row["error_kind"] is None:
        target = None if row["target"] is None else json.loads(row["target"])
        with patience(desk.row_seconds):
            marks = mark(desk.task, row["answer"], target)
        record |= {**marks.scores, "parse_error": marks.parse_error}
        if marks.failure is not None:
            return _unmarked(record, marks.failure)
    return record


def _base(row: dict[str, Any], desk: Desk) -> dict[str, Any]:
    return {
        **row,
        "checkpoint": desk.checkpoint,
        "sweep": desk.sweep,
        "finished_at": datetime.now(UTC),
        "output_tokens": None if row["token_ids"] is None else len(row["token_ids"]),
    }


def _unmarked(record: dict[str, Any], failure: Failure) -> dict[str, Any]:
    """The record of an answer that could not be marked."""
    answer = record["answer"] or ""
    return record | {
        "answer": None,
        "unmarked": answer,
        "error_kind": failure.kind.value,
        "error_message": f"{failure.message}; the answer was {answer[:200]!r} (whole: attempts/)",
    }


def _count(checkpoint: str, records: list[dict[str, Any]]) -> None:
    for outcome, rows in Counter(record["error_kind"] or "answered" for record in records).items():
        count_rows(checkpoint, outcome, rows)
    count_tokens(checkpoint, sum(record["output_tokens"] or 0 for record in records))


def _retryable(record: dict[str, Any]) -> bool:
    return record["error_kind"] is not None and ErrorKind(record["error_kind"]).retryable


def _tally(final: list[dict[str, Any]], again: list[dict[str, Any]], trouble: str | None = None) -> pa.Table:
    errors = Counter(r["error_kind"] for r in final if r["error_kind"] is not None)
    tally = {
        "rows": len(final) + len(again),
        "answered": sum(r["error_kind"] is None for r in final),
        "output_tokens": sum(r["output_tokens"] or 0 for r in final),
        "errors": json.dumps(errors),
        "retries": json.dumps(Counter(r["error_kind"] for r in again)),
        "trouble": trouble,
    }
    return pa.Table.from_pylist([tally], schema=TALLY)
