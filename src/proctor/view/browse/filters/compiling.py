"""From a tree to a condition in SQL: columns by their quoted names, everything that was typed as a bound parameter.

SQL knows a third answer, null, where a value is missing. A condition takes it for no; ``and`` and ``or`` carry it no
further than that, and ``not`` is put around ``coalesce(..., false)``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from proctor.view.browse.filters.columns import Column, Columns
from proctor.view.browse.filters.errors import FilterError
from proctor.view.browse.filters.nodes import (
    TEXT_OPERATORS,
    Absent,
    Among,
    And,
    Compare,
    Filter,
    Name,
    Not,
    Or,
    Truth,
    Value,
)
from proctor.view.browse.filters.printing import name_text

_FUNCTIONS = {"contains": "contains", "starts with": "starts_with", "ends with": "ends_with"}
_SYMBOLS = {"=": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_NAN_PASSES = frozenset({"!=", ">", ">="})
"""DuckDB takes NaN for larger than every number; what it would then wrongly pass."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition in SQL and the values of its ``?``, in order."""

    sql: str = "true"
    parameters: list[Any] = field(default_factory=list)


def compile_filter(tree: Filter | None, columns: Columns) -> Condition:
    """The condition that the rows of a filter meet; without a filter, all do.

    Raises:
        FilterError: it names no column of `columns`, or asks one for what its kind of values does not have.
    """
    if tree is None:
        return Condition()
    compiler = _Compiler(columns)
    return Condition(compiler.sql(tree), compiler.parameters)


class _Compiler:
    """Parameters are collected in the order in which their ``?`` are written."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self.parameters: list[Any] = []

    def sql(self, tree: Filter) -> str:
        match tree:
            case And(items):
                return f"({' and '.join([self.sql(item) for item in items])})"
            case Or(items):
                return f"({' or '.join([self.sql(item) for item in items])})"
            case Not(item):
                return f"(not coalesce({self.sql(item)}, false))"
            case Absent(name, negated):
                return f"({self._column(name).sql} is {'not null' if negated else 'null'})"
            case Truth(name):
                return self._truth(name)
            case Among(name, values, negated):
                return self._among(name, values, negated)
            case Compare():
                return self._compare(tree)

    def _column(self, name: Name) -> Column:
        column = self._columns.get(name.text)
        if column is None:
            near = self._columns.nearest(name.text)
            shown = name.text if len(name.text) <= 80 else f"{name.text[:79]}\u2026"
            fix = None if near is not None else "texts stand in quotation marks"
            suggestion = None if near is None else name_text(near)
            raise FilterError(f"no column {shown!r}", name.start, name.end, suggestion=suggestion, fix=fix)
        return column

    def _truth(self, name: Name) -> str:
        column = self._column(name)
        if column.kind != "yes or no":
            fix = f"compare it, or write: {name_text(name.text)} is not null"
            what = f"{name.text} holds {_held(column)}, so by itself it is no question"
            raise FilterError(what, name.start, name.end, fix=fix)
        return column.sql

    def _among(self, name: Name, values: tuple[Value, ...], negated: bool) -> str:
        column = self._column(name)
        self.parameters += [_bound(column, name, value) for value in values]
        marks = ", ".join("?" for _ in values)
        sql = f"{column.sql} {'not in' if negated else 'in'} ({marks})"
        return f"({sql} and not isnan({column.sql}))" if negated and column.floating else f"({sql})"

    def _compare(self, tree: Compare) -> str:
        left = self._column(tree.column)
        if tree.operator in TEXT_OPERATORS:
            if left.kind != "text":
                what = f"{tree.column.text} holds {_held(left)}, and only texts can be asked what they contain"
                raise FilterError(what, tree.column.start, tree.column.end)
            self.parameters.append(_bound(left, tree.column, tree.right))
            return f"{_FUNCTIONS[tree.operator]}({left.sql}, ?)"
        sides = [left]
        if isinstance(tree.right, Name):
            right = self._column(tree.right)
            _check_alike(tree, left, right)
            sides.append(right)
            sql = f"{_scaled(left)} {_SYMBOLS[tree.operator]} {_scaled(right)}"
            nan = [side for side in sides if side.floating]
        else:
            self.parameters.append(_bound(left, tree.column, tree.right))
            sql = f"{left.sql} {_SYMBOLS[tree.operator]} ?"
            nan = [left] if left.floating and tree.operator in _NAN_PASSES else []
        return f"({' and '.join([sql, *(f'not isnan({side.sql})' for side in nan)])})"


def _scaled(column: Column) -> str:
    return column.sql if column.scale == 1 else f"({column.sql} * {column.scale})"


def _check_alike(tree: Compare, left: Column, right: Column) -> None:
    if left.kind == right.kind != "other":
        return
    what = f"{tree.column.text} holds {_held(left)}"
    if left.kind != right.kind and isinstance(tree.right, Name):
        what = f"{what}, {tree.right.text} {_held(right)}: they cannot be compared"
    else:
        what = f"{what}, which cannot be compared"
    raise FilterError(what, tree.right.start, tree.right.end)


def _bound(column: Column, name: Name, right: Value | Name) -> Any:
    """The value to bind for a constant beside `column`, in the column's unit."""
    if isinstance(right, Name):
        raise FilterError("a text in quotation marks is expected, not a column", right.start, right.end)
    value, kind = right.value, column.kind
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = {"text": isinstance(value, str), "number": is_number, "yes or no": isinstance(value, bool)}
    if kind == "time" and isinstance(value, str):
        return _moment(column, value, right)
    if not fits.get(kind, False):
        fix = None if kind == "other" else _FIXES[kind]
        lack = "not this" if fix is not None else "which can only be asked for null"
        raise FilterError(f"{name.text} holds {_held(column)}, {lack}", right.start, right.end, fix=fix)
    return value / column.scale if column.scale != 1 and isinstance(value, int | float) else value


_FIXES = {
    "text": "texts stand in quotation marks",
    "number": "a number stands without quotation marks",
    "yes or no": "true or false",
    "time": 'a time is written "2026-11-30 10:00", in UTC',
}


def _moment(column: Column, text: str, value: Value) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        moment = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise FilterError("not a time", value.start, value.end, fix=_FIXES["time"]) from None
    return moment if column.type == "TIMESTAMP WITH TIME ZONE" else moment.replace(tzinfo=None)


def _held(column: Column) -> str:
    names = {"text": "texts", "number": "numbers", "yes or no": "yes or no", "time": "times"}
    return names.get(column.kind, f"values of another kind ({column.type[:60]})")
