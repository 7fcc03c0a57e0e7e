"""What became of every row, from the result files and the known truth alone. What a system says counts for nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


@dataclass(frozen=True, slots=True)
class Account:
    """Each expected row is in exactly one of `answered`, `errors`, `truncated`, `wrong`, `blank_as_success` and `lost`.

    Attributes:
        rows: rows of the source.
        answered: rows with their right answer.
        errors: rows with a typed error and no right answer.
        truncated: rows whose answer was cut short, which their record says.
        wrong: rows with another answer than the right one, and no word of it.
        blank_as_success: rows whose only answer is blank, without an error.
        lost: rows without any record.
        duplicated: records beyond the first of a row, and records of rows that do not exist.
        innocents_harmed: rows that no fault was planted in and that have no right answer.
        unreadable: result files that cannot be read.
    """

    rows: int
    answered: int
    errors: int
    truncated: int
    wrong: int
    blank_as_success: int
    lost: int
    duplicated: int
    innocents_harmed: int
    unreadable: int

    def to_json(self) -> dict[str, int]:
        """Plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Record:
    """What one record says of its row."""

    answer: str | None
    error: str | None
    finish_reason: str | None = None


def account(files: Iterable[Path], truth: Mapping[int, str], guilty: Collection[int]) -> Account:
    """Counts the records in the Parquet `files`.

    Args:
        files: result files with ``row_id``, ``answer`` and, where the system has them, ``error_kind`` and
            ``finish_reason``.
        truth: the right answer of every row.
        guilty: rows that the fault strikes itself; all others are innocent.
    """
    records, unreadable = read_records(files)
    fates = {row: fate(records.get(row, []), answer) for row, answer in truth.items()}
    count = dict.fromkeys(("answered", "errors", "truncated", "wrong", "blank_as_success", "lost"), 0)
    for name in fates.values():
        count[name] += 1
    return Account(
        rows=len(truth),
        **count,
        duplicated=sum(len(of_row) - (row in truth) for row, of_row in records.items()),
        innocents_harmed=sum(name != "answered" and row not in guilty for row, name in fates.items()),
        unreadable=unreadable,
    )


def fate(records: list[Record], right: str) -> str:
    """What a reader of the results would take from all records of one row; the best one counts."""
    if any(record.answer == right and record.error is None for record in records):
        return "answered"
    if any(record.error is not None for record in records):
        return "errors"
    if any(record.finish_reason == "length" for record in records):
        return "truncated"
    if any(record.answer and record.answer.strip() for record in records):
        return "wrong"
    return "blank_as_success" if records else "lost"


def read_records(files: Iterable[Path]) -> tuple[dict[int, list[Record]], int]:
    """All records by row id, and how many files could not be read."""
    records: dict[int, list[Record]] = defaultdict(list)
    unreadable = 0
    for file in sorted(files):
        try:
            rows: list[dict[str, Any]] = pq.ParquetFile(file).read().to_pylist()
        except (OSError, pa.ArrowInvalid):
            unreadable += 1
            continue
        for row in rows:
            records[row["row_id"]].append(Record(row["answer"], row.get("error_kind"), row.get("finish_reason")))
    return records, unreadable
