"""The timeline as a table: Parquet, CSV, or one JSON object a line; a bounded number of rows at once."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.trace.model import pid_of, tid_of
from proctor.trace.timeline.timeline import Event

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_AT_ONCE = 50_000

COLUMNS = {
    "at_ns": "int64",
    "start_ns": "int64",
    "end_ns": "int64",
    "duration_ns": "int64",
    "kind": "dictionary",
    "name": "dictionary",
    "process": "int64",
    "pid": "int32",
    "tid": "int32",
    "device": "int32",
    "context": "int32",
    "stream": "int64",
    "correlation": "int64",
    "bytes": "int64",
    "detail": "string",
}
"""Columns of every table with their types. ``at_ns`` counts from the trace's first event, ``start_ns`` and ``end_ns``
are on its own clock; ``end_ns`` and ``duration_ns`` are null for a range that the trace does not see end."""


def write_parquet(events: Iterator[Event], path: Path, zero: int) -> int:
    """Writes Parquet, compressed with Zstandard; returns the number of events."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema()
    count = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for rows in _batches(events, zero):
            columns = [
                pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema))
            count += len(rows)
    return count


def write_csv(events: Iterator[Event], path: Path, zero: int) -> int:
    """Writes CSV with a header; what is unknown is empty. Returns the number of events."""
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for rows in _batches(events, zero):
            writer.writerows(rows)
            count += len(rows)
    return count


def write_jsonl(events: Iterator[Event], path: Path, zero: int) -> int:
    """Writes one JSON object a line; returns the number of events."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for rows in _batches(events, zero):
            file.writelines(json.dumps(dict(zip(COLUMNS, row, strict=True))) + "\n" for row in rows)
            count += len(rows)
    return count


def _schema() -> pa.Schema:
    import pyarrow as pa

    types = {"dictionary": pa.dictionary(pa.int32(), pa.string())}
    return pa.schema([(name, types.get(type_) or pa.type_for_alias(type_)) for name, type_ in COLUMNS.items()])


def _batches(events: Iterator[Event], zero: int) -> Iterator[Sequence[tuple[Any, ...]]]:
    while rows := [_row(event, zero) for event in islice(events, _ROWS_AT_ONCE)]:
        yield rows


def _row(event: Event, zero: int) -> tuple[Any, ...]:
    return (
        event.start - zero,
        event.start,
        event.end,
        None if event.end is None else event.end - event.start,
        str(event.kind),
        event.name,
        event.process,
        None if event.process is None else pid_of(event.process),
        None if event.thread is None else tid_of(event.thread),
        event.device,
        event.context,
        event.stream,
        event.correlation,
        event.bytes,
        event.detail,
    )


TABLE_WRITERS: dict[str, Callable[[Iterator[Event], Path, int], int]] = {
    "parquet": write_parquet,
    "csv": write_csv,
    "jsonl": write_jsonl,
}
