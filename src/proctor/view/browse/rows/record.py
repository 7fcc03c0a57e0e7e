"""One row: its record whole, or nearly, and the tries before it."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from proctor.results import RunDir
from proctor.results.parts import read_each
from proctor.storage.folder import LocalFolder
from proctor.view.browse.filters import Column
from proctor.view.browse.rows.paging import TIES
from proctor.view.browse.rows.table import RowTable

MOST_CHARACTERS = 100_000
"""Most characters of a text; one more is given where there is more."""
MOST_RECORDS = 20
MOST_ATTEMPTS = 50
_TRY = re.compile(r"try-(?P<checkpoint>.+)-\d+-(?P<first>\d+)-(?P<last>\d+)-[0-9a-f]+\.parquet")
_SHORT = 2_000
MOST_ITEMS = 2_000
_LIST = re.compile(r"(FLOAT|DOUBLE|(TINY|SMALL|BIG)?INT(EGER)?)\[\](?P<points>\[\])?")


def records_of(table: RowTable, row_id: int, checkpoint: str | None = None) -> list[dict[str, Any]]:
    """The records of a row, of one checkpoint or of all, by checkpoint; more than one of a checkpoint only in a damaged
    run. At most `MOST_RECORDS`.

    Values that are neither texts, numbers, times nor yes or no are given as text. Texts are cut at `MOST_CHARACTERS`.
    """
    if not -(2**63) <= row_id < 2**63:
        return []
    columns = list(table.columns.own.values())
    cells = ", ".join(
        column.sql
        if column.kind in ("number", "yes or no", "time")
        else f"left({column.sql}::varchar, {MOST_CHARACTERS + 1})"
        for column in columns
    )
    of = "" if checkpoint is None else "and checkpoint = ?"
    records = table.holding([row_id])
    sql = f"select {cells} from {records} where row_id = ? {of} order by checkpoint, {TIES} limit {MOST_RECORDS}"
    rows = table.ask(sql, [row_id, *([] if checkpoint is None else [checkpoint])])
    return [dict(zip([column.name for column in columns], row, strict=True)) for row in rows]


def lists_of(table: RowTable, row_id: int, checkpoint: str | None = None) -> list[dict[str, list[Any]]]:
    """The columns of numbers and of points of the records that `records_of` gives, in the same order: their first
    `MOST_ITEMS` values, of points the first two numbers. Columns without a value are left out."""
    cells = {name: cell for name, column in table.columns.own.items() if (cell := _list_cell(column)) is not None}
    if not cells or not -(2**63) <= row_id < 2**63:
        return []
    of = "" if checkpoint is None else "and checkpoint = ?"
    sql = f"select {', '.join(cells.values())} from {table.holding([row_id])} where row_id = ? {of}"
    sql += f" order by checkpoint, {TIES} limit {MOST_RECORDS}"
    rows = table.ask(sql, [row_id, *([] if checkpoint is None else [checkpoint])])
    return [{name: value for name, value in zip(cells, row, strict=True) if value is not None} for row in rows]


def _list_cell(column: Column) -> str | None:
    match = _LIST.fullmatch(column.type)
    if match is None:
        return None
    first = f"list_slice({column.sql}, 1, {MOST_ITEMS})"
    return f"list_transform({first}, lambda point: list_slice(point, 1, 2))" if match["points"] else first


def attempts_of(run: RunDir, row_id: int, checkpoint: str) -> list[dict[str, Any]]:
    """Tries of a row that came before its record, oldest first, at most `MOST_ATTEMPTS`. Files that are damaged, or
    symbolic links, are left out: this is history only.

    Raises:
        OSError: storage failed.
    """
    names = [name for name in run.attempts.names() if _may_hold(name, row_id, checkpoint)]
    if isinstance(run.attempts, LocalFolder):
        names = [name for name in names if not (run.attempts.root / name).is_symlink()]
    found: list[dict[str, Any]] = []
    for _, table in read_each(run.attempts, names, lambda source: _tries(source, row_id, checkpoint)):
        if not isinstance(table, Exception):
            found += [_cut(row) for row in table.to_pylist()]
    return sorted(found, key=lambda row: row.get("sweep") or 0)[:MOST_ATTEMPTS]


def _may_hold(name: str, row_id: int, checkpoint: str) -> bool:
    match = _TRY.fullmatch(name)
    return (
        match is not None and match["checkpoint"] == checkpoint and int(match["first"]) <= row_id <= int(match["last"])
    )


def _tries(source: Any, row_id: int, checkpoint: str) -> pa.Table:
    return pq.read_table(source, filters=[("row_id", "=", row_id), ("checkpoint", "=", checkpoint)])


def _cut(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value[:_SHORT] if isinstance(value, str) else value for name, value in row.items()}
