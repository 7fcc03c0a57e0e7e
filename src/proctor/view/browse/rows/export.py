"""The rows of a query in one file."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Literal, NamedTuple

from proctor.view.browse.rows.query import Query, sort_key
from proctor.view.browse.rows.table import PART, PLACE, RowTable

Form = Literal["csv", "parquet", "ids"]


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

    ``ids`` is a list of row ids, each once and in order, a line each. Who calls removes the file.

    Raises:
        UserError: the filter or the order is none, or there is no room.
    """
    condition, key = query.condition(table.columns), sort_key(query.sort, table.columns)
    way = "desc" if query.sort.descending else "asc"
    target = table.scratch / f"{uuid.uuid4().hex}{EXPORTS[form].suffix}"
    rows = f'select * exclude ("{PART}", "{PLACE}") from records where {condition.sql} '
    rows += f'order by {key} {way} nulls last, row_id, checkpoint, "{PART}", "{PLACE}"'
    ids = f"select distinct row_id from records where {condition.sql} order by row_id"
    copied, how = {
        "csv": (rows, "format csv, header"),
        "parquet": (rows, "format parquet, compression zstd"),
        "ids": (ids, "format csv, header false"),
    }[form]
    path = str(target).replace("'", "''")
    try:
        table.ask(f"copy ({copied}) to '{path}' ({how})", condition.parameters)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return target
