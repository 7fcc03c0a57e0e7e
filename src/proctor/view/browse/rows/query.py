"""Which rows, and in what order."""

from __future__ import annotations

from dataclasses import dataclass

from proctor.rows import UserError
from proctor.view.browse.filters import Column, Columns, Condition, FilterError, compile_filter, parse
from proctor.view.browse.filters.nodes import named

MOST_SEARCHED = 500
KEY_CHARACTERS = 100
"""Texts are sorted by so many of their first characters."""


@dataclass(frozen=True, slots=True)
class Sort:
    """By one column. Rows without a value come last, whichever way; NaN counts as no value. Equal ones stand by row id,
    then by checkpoint."""

    column: str = "row_id"
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """Some rows.

    Attributes:
        filter: in the filter language; empty for all.
        search: a text that one of the row's texts contains, in any case; empty for all.
    """

    filter: str = ""
    search: str = ""
    sort: Sort = Sort()

    @property
    def everything(self) -> bool:
        """Whether all rows are meant."""
        return not self.filter.strip() and not self.search.strip()

    def names(self, columns: Columns) -> set[str] | None:
        """The columns that tell which rows they are; None for all texts, as a search needs.

        Raises:
            FilterError: the filter is none.
        """
        if self.search.strip():
            return None
        return {column.name for name in named(parse(self.filter)) if (column := columns.get(name)) is not None}

    def condition(self, columns: Columns) -> Condition:
        """What its rows meet, in SQL.

        Raises:
            FilterError: the filter is none.
            UserError: the search is longer than can be asked.
        """
        found = compile_filter(parse(self.filter), columns)
        search = self.search.strip()
        if not search:
            return found
        if len(search) > MOST_SEARCHED:
            raise UserError(f"a search of more than {MOST_SEARCHED} characters")
        if any("\ud800" <= character <= "\udfff" for character in search):
            raise UserError("half a character in the search, which no text can hold")
        texts = [column.sql for column in columns.own.values() if column.kind == "text"]
        looked = " or ".join(f"contains(lower({text}), lower(?))" for text in texts)
        return Condition(f"({found.sql}) and ({looked or 'false'})", [*found.parameters, *([search] * len(texts))])


def sort_key(sort: Sort, columns: Columns) -> str:
    """The value that rows are sorted by, in SQL.

    Raises:
        UserError: there is no such column, or its values have no order.
    """
    column = columns.get(sort.column)
    if column is None:
        near = columns.nearest(sort.column)
        raise UserError(f"no column {sort.column[:80]!r} to sort by", fix=f"did you mean {near}?" if near else None)
    key = _key(column)
    if key is None:
        raise UserError(f"rows cannot be sorted by {column.name}: it holds {column.type[:60]}")
    return key


def _key(column: Column) -> str | None:
    match column.kind:
        case "text":
            return f"left({column.sql}::varchar, {KEY_CHARACTERS})"
        case "time":
            zoned = column.type == "TIMESTAMP WITH TIME ZONE"
            return f"epoch_us({column.sql})" if zoned else f"epoch_us({column.sql}::timestamp)"
        case "number" if column.floating or column.type.startswith("DECIMAL"):
            return f"nullif({column.sql}::double, 'nan'::double)"
        case "number" | "yes or no":
            return column.sql
    return None


__all__ = ["FilterError", "Query", "Sort", "sort_key"]
