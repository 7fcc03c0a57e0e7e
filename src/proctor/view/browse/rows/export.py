"""The rows of a query in one file."""

from __future__ import annotations

import tempfile
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import copyfileobj
from typing import Literal, NamedTuple

from proctor.view.browse.filters import Column
from proctor.view.browse.rows.database import PART, PLACE, text
from proctor.view.browse.rows.paging import count
from proctor.view.browse.rows.parts import Part
from proctor.view.browse.rows.patience import EXPORT_SECONDS, Patience
from proctor.view.browse.rows.query import Query, sort_key
from proctor.view.browse.rows.table import RowTable

Form = Literal["csv", "parquet", "ids"]

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""How a text begins that a spreadsheet may take for a formula, wide forms included (OWASP, "CSV Injection")."""
_SPAN_ROWS = 20_000
_PARQUET = "format parquet, compression zstd, row_group_size 20480"
_TURN = threading.Lock()
"""Exports go one after another: each may take all the memory that there is for one."""


class Export(NamedTuple):
    """A format: how its files end, and their media type."""

    suffix: str
    media_type: str


EXPORTS: dict[Form, Export] = {
    "csv": Export(".csv", "text/csv; charset=utf-8"),
    "parquet": Export(".parquet", "application/vnd.apache.parquet"),
    "ids": Export(".txt", "text/plain; charset=utf-8"),
}


def export_rows(table: RowTable, query: Query, form: Form) -> Path:
    """Writes all columns of the rows, in the order of `query`, into a file in the table's own directory.

    ``ids`` is a list of row ids, each once and in order, a line each. In ``csv`` a text that a spreadsheet might take
    for a formula (`FORMULA`) has ``'`` in front; numbers have not, and ``parquet`` holds every value as it is. Who
    calls removes the file.

    Raises:
        UserError: the filter or the order is none, there is no room, or it takes too long.
    """
    patience = table.patience or Patience(EXPORT_SECONDS)
    target = table.scratch / f"{uuid.uuid4().hex}{EXPORTS[form].suffix}"
    try:
        with _turn(patience):
            if form == "ids":
                _write_ids(table.within(patience), query, target)
            else:
                spans = _spans(table.within(patience), query)
                with table.within(patience).apart() as apart:
                    _write_rows(apart, query, form, spans, target)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return target


@contextmanager
def _turn(patience: Patience) -> Iterator[None]:
    while not _TURN.acquire(timeout=0.2):
        patience.check()
    try:
        yield
    finally:
        _TURN.release()


def _write_ids(table: RowTable, query: Query, target: Path) -> None:
    condition, names = query.condition(table.columns), query.names(table.columns)
    where = "records" if names is None else table.having(names)
    sql = f"select distinct row_id from {where} where {condition.sql} order by row_id"
    table.ask(f"copy ({sql}) to {text(str(target))} (format csv, header false)", condition.parameters)


def _write_rows(table: RowTable, query: Query, form: Form, spans: Sequence[Sequence[Part]], target: Path) -> None:
    """In pieces, one for each company of parts."""
    condition, key = query.condition(table.columns), sort_key(query.sort, table.columns)
    way = "desc" if query.sort.descending else "asc"
    cells = ", ".join(_cell(column, form) for column in table.columns.own.values())
    order = f'{key} {way} nulls last, row_id, checkpoint, "{PART}", "{PLACE}"'
    with tempfile.TemporaryDirectory(dir=table.scratch) as folder:
        pieces = [Path(folder) / f"{number}" for number in range(len(spans))]
        for piece, parts in zip(pieces, spans, strict=True):
            sql = f"select {cells} from {table.of(parts)} where {condition.sql} order by {order}"
            how = _PARQUET if form == "parquet" else f"format csv, header {str(piece is pieces[0]).lower()}"
            table.ask(f"copy ({sql}) to {text(str(piece))} ({how})", condition.parameters)
        _join(table, pieces, form, target)


def _join(table: RowTable, pieces: Sequence[Path], form: Form, target: Path) -> None:
    if len(pieces) == 1:
        pieces[0].replace(target)
    elif form == "csv":
        with target.open("wb") as out:
            for piece in pieces:
                with piece.open("rb") as read:
                    copyfileobj(read, out)
                piece.unlink()
    else:  # not by pyarrow: what is null in no row of a piece may not be null in that file at all
        files = ", ".join(text(str(piece)) for piece in pieces)
        table.ask(f"copy (select * from read_parquet([{files}])) to {text(str(target))} ({_PARQUET})")


def _cell(column: Column, form: Form) -> str:
    if form == "parquet":
        return column.sql
    name = Column(f"'{column.name}" if column.name.startswith(FORMULA) else column.name, column.type).sql
    if column.kind != "text":
        return f"{column.sql} as {name}"
    value, starts = f"{column.sql}::varchar", ", ".join(map(text, FORMULA))
    return f"case when left({value}, 1) in ({starts}) then '''' || {value} else {value} end as {name}"


def _spans(table: RowTable, query: Query) -> list[list[Part]]:
    """The parts, in such companies that all rows of one come before all rows of the next: putting some in order takes
    less memory and time than all. Few rows, and another order than that of row ids, make one company of all."""
    parts = sorted(table.files.found.values(), key=lambda part: part.first)
    if query.sort.column != "row_id" or len(parts) < 2 or count(table, query) <= _SPAN_ROWS:
        return [parts]
    spans, edge = [[parts[0]]], parts[0].last
    for part in parts[1:]:
        if part.first <= edge or sum(one.rows for one in spans[-1]) < _SPAN_ROWS:
            spans[-1].append(part)
        else:
            spans.append([part])
        edge = max(edge, part.last)
    return spans[::-1] if query.sort.descending else spans
