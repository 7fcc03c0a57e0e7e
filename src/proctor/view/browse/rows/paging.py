"""A page of rows, before or after a place: never by counting rows off, which would take longer the further one goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proctor.rows import UserError
from proctor.view.browse.filters import Column, Condition
from proctor.view.browse.rows.cursors import Cursor
from proctor.view.browse.rows.database import PART, PLACE
from proctor.view.browse.rows.query import Query, sort_key
from proctor.view.browse.rows.table import RowTable

MOST_ROWS = 500
CELL_CHARACTERS = 200
"""Most characters of a text in a page; one more is given where there is more."""
TIES = f'row_id, checkpoint, "{PART}", "{PLACE}"'
"""What tells rows apart that are equal in the column they are sorted by."""
_MOST_COUNTED = 200
_LIMIT_OF_TEXT = CELL_CHARACTERS + 1


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows in order.

    Attributes:
        rows: each with the columns that were asked for, texts cut (see `CELL_CHARACTERS`); and ``row_id`` and
            ``checkpoint``, always.
        previous, next: the place of the first row, if there are rows before it; that of the last, if there are any
            after it.
    """

    rows: list[dict[str, Any]]
    previous: Cursor | None
    next: Cursor | None


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The rows before and after a row, as (row id, checkpoint)."""

    previous: tuple[int, str] | None
    next: tuple[int, str] | None


def count(table: RowTable, query: Query) -> int:
    """How many rows there are.

    Raises:
        UserError: the filter or the search is none.
    """
    condition = query.condition(table.columns)
    if query.everything:
        return table.total
    asked = (query.filter, query.search)
    known = table.counted.get(asked)
    if known is not None:
        return known
    where = _looked_through(table, query)
    found = int(table.ask(f"select count(*) from {where} where {condition.sql}", condition.parameters)[0][0])
    if len(table.counted) >= _MOST_COUNTED:
        table.counted.clear()
    table.counted[asked] = found
    return found


def page(
    table: RowTable,
    query: Query,
    columns: Sequence[str],
    *,
    size: int = 50,
    after: Cursor | None = None,
    before: Cursor | None = None,
) -> Page:
    """The first rows, or those next to a place.

    Args:
        table: where.
        query: which rows, in what order.
        columns: what to show of them, by their own names.
        size: most rows, at most `MOST_ROWS`.
        after, before: at most one of them: the page begins after that row, or ends before it.

    Raises:
        UserError: the filter, the order or a column is none, or the place is of another order.
    """
    shown = _shown(table, columns)
    size = max(1, min(size, MOST_ROWS))
    backwards = before is not None
    keys = _keys(table, query, before or after, size + 1, backwards=backwards)
    more, keys = len(keys) > size, keys[:size]
    if backwards:
        keys.reverse()
    if not keys:
        return Page([], None, None)
    has_previous = more if backwards else after is not None
    has_next = True if backwards else more
    return Page(_cells(table, shown, keys), keys[0] if has_previous else None, keys[-1] if has_next else None)


def neighbours(table: RowTable, query: Query, row_id: int, checkpoint: str) -> Neighbours:
    """The rows next to a row among those of `query`, whether or not it is one of them.

    Raises:
        UserError: as `page`.
    """
    key = sort_key(query.sort, table.columns)
    records = table.holding([row_id])
    sql = f"select {key}, {TIES} from {records} where row_id = ? and checkpoint = ? order by 4, 5 limit 1"
    found = table.ask(sql, [row_id, checkpoint])
    if not found:
        return Neighbours(None, None)
    here = Cursor(query.sort.column, *found[0])
    sides = [_keys(table, query, here, 1, backwards=backwards) for backwards in (True, False)]
    previous, following = ((side[0].row_id, side[0].checkpoint) if side else None for side in sides)
    return Neighbours(previous, following)


def _keys(table: RowTable, query: Query, at: Cursor | None, most: int, *, backwards: bool) -> list[Cursor]:
    """Keys of the rows next to `at`, nearest first."""
    key = sort_key(query.sort, table.columns)
    condition = query.condition(table.columns)
    place = _beyond(table, query, key, at, backwards) if at is not None else Condition()
    falling = query.sort.descending != backwards
    way, back = ("desc" if falling else "asc"), ("desc" if backwards else "asc")
    order = f"1 {way} nulls {'first' if backwards else 'last'}, {', '.join(f'{n} {back}' for n in range(2, 6))}"
    where = _looked_through(table, query)
    if where == "records" and query.everything and query.sort.column == "row_id":
        where = table.next_to(None if at is None else at.row_id, most + 1, falling=falling)
    sql = f"select {key}, {TIES} from {where} where ({condition.sql}) and ({place.sql}) order by {order} limit ?"
    rows = table.ask(sql, [*condition.parameters, *place.parameters, most])
    return [Cursor(query.sort.column, *row) for row in rows]


def _looked_through(table: RowTable, query: Query) -> str:
    """Where the rows of a query are looked for, as a table in SQL."""
    names = query.names(table.columns)
    sort = table.columns.get(query.sort.column)
    return "records" if names is None or sort is None else table.having(names | {sort.name})


def _beyond(table: RowTable, query: Query, key: str, at: Cursor, backwards: bool) -> Condition:
    """What rows after `at` meet; before it, if `backwards`."""
    if at.sort != query.sort.column:
        raise UserError("this is a place in another order", fix="begin at the first page")
    _check_value(table, at)
    ties = f"({TIES}) {'<' if backwards else '>'} (?, ?, ?, ?)"
    if at.value is None:
        rest = f"{key} is null and {ties}"
        return Condition(f"{key} is not null or ({rest})" if backwards else rest, at.ties)
    sign = "<" if query.sort.descending != backwards else ">"
    rest = f"{key} {sign} ? or ({key} = ? and {ties})"
    if query.sort.column == "row_id":  # never null; said once more, in a way that lets whole parts be skipped
        return Condition(f"row_id {sign}= ? and ({rest})", [at.value, at.value, at.value, *at.ties])
    return Condition(rest if backwards else f"{rest} or {key} is null", [at.value, at.value, *at.ties])


def _check_value(table: RowTable, at: Cursor) -> None:
    column = table.columns.get(at.sort)
    number = isinstance(at.value, int | float) and not isinstance(at.value, bool)
    fits = {
        "text": isinstance(at.value, str),
        "number": number,
        "time": number,
        "yes or no": isinstance(at.value, bool),
    }
    if at.value is not None and column is not None and not fits.get(column.kind, False):
        raise UserError("this is no place in these rows", fix="begin at the first page")


def _shown(table: RowTable, columns: Sequence[str]) -> list[Column]:
    unknown = next((name for name in columns if name not in table.columns.own), None)
    if unknown is not None:
        near = table.columns.nearest(unknown)
        raise UserError(f"no column {unknown[:80]!r} to show", fix=f"did you mean {near}?" if near else None)
    return [table.columns.own[name] for name in dict.fromkeys(["row_id", "checkpoint", *columns])]


def _cells(table: RowTable, shown: Sequence[Column], keys: Sequence[Cursor]) -> list[dict[str, Any]]:
    """The rows of `keys`, read by their ids, so that no other row's texts are."""
    ids = sorted({cursor.row_id for cursor in keys})
    marks = ", ".join("?" for _ in ids)
    cells = ", ".join(_cell(column) for column in shown)
    wanted = {cursor.part for cursor in keys}
    parts = [part for name, part in table.files.found.items() if name in wanted]
    rows = table.ask(f"select {TIES}, {cells} from {table.of(parts)} where row_id in ({marks})", ids)
    by_key = {row[:4]: dict(zip([column.name for column in shown], row[4:], strict=True)) for row in rows}
    return [by_key[key] for key in (tuple(cursor.ties) for cursor in keys) if key in by_key]


def _cell(column: Column) -> str:
    if column.kind in ("number", "yes or no", "time"):
        return column.sql
    return f"left({column.sql}::varchar, {_LIMIT_OF_TEXT})"
