"""What a filter means: the same as the same question asked in Python, on random rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.view.browse.filters import (
    compile_filter,
    parse,
    to_text,
)
from proctor.view.browse.filters.nodes import (
    ORDER_OPERATORS,
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
from tests.view.browse.columns import COLUMNS, SCHEMA, TYPES

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4) | st.sampled_from(
    ["", "a", "b", "ab", "'", '"', "\\", "%", "_", "' or true --"]
)
_NUMBERS = st.integers(-3, 3) | st.floats(-3, 3, allow_nan=False).map(lambda x: round(x, 1))
_TIMES = st.datetimes(datetime(2026, 1, 1), datetime(2026, 1, 3)).map(
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000, tzinfo=UTC)
)
_BY_KIND: dict[str, tuple[list[str], st.SearchStrategy[Any]]] = {
    "text": (["answer", "error_kind", "error.kind", 'my "odd` name'], _TEXTS),
    "number": (["row_id", "latency_s", "latency_ms", "attempts", "and"], _NUMBERS),
    "time": (["finished_at"], _TIMES.map(lambda moment: moment.isoformat())),
    "truth": (["exact"], st.booleans()),
}


@st.composite
def _questions(draw: st.DrawFn) -> Filter:
    """Questions that fit `TYPES`."""
    names, values = _BY_KIND[draw(st.sampled_from(list(_BY_KIND)))]
    column = Name(draw(st.sampled_from(names)))
    shape = draw(st.integers(0, 5))
    if shape == 0:
        return Absent(Name(draw(st.sampled_from(list(TYPES)))), draw(st.booleans()))
    if shape == 1:
        return Among(column, tuple(map(Value, draw(st.lists(values, min_size=1, max_size=3)))), draw(st.booleans()))
    if shape == 2:
        return Truth(Name("exact"))
    if shape == 3:
        return Compare(column, draw(st.sampled_from(ORDER_OPERATORS)), Name(draw(st.sampled_from(names))))  # type: ignore[arg-type]
    if shape == 4:
        text = Name(draw(st.sampled_from(_BY_KIND["text"][0])))
        return Compare(text, draw(st.sampled_from(TEXT_OPERATORS)), Value(draw(_TEXTS)))  # type: ignore[arg-type]
    return Compare(column, draw(st.sampled_from(ORDER_OPERATORS)), Value(draw(values)))  # type: ignore[arg-type]


def _nested(items: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
    several = st.lists(items, min_size=2, max_size=3).map(tuple)
    return items.map(Not) | several.map(And) | several.map(Or)


_FILTERS = st.recursive(_questions(), _nested, max_leaves=8)
_ROWS = st.fixed_dictionaries(
    {
        "row_id": st.integers(-3, 3),
        "answer": st.none() | _TEXTS,
        "error_kind": st.none() | _TEXTS,
        "latency_s": st.none() | st.sampled_from([0.0, 0.001, -0.002, 1.0, math.nan]) | st.floats(-3, 3),
        "attempts": st.none() | st.integers(-3, 3),
        "exact": st.none() | st.booleans(),
        "finished_at": st.none() | _TIMES,
        "token_ids": st.none() | st.just([1]),
        'my "odd` name': st.none() | _TEXTS,
        "and": st.none() | st.just(math.nan) | st.floats(-3, 3),
    }
)


@given(_FILTERS)
@settings(max_examples=150, deadline=None)
def test_what_is_printed_is_parsed_to_the_same_tree(tree: Filter) -> None:
    assert parse(to_text(tree)) == tree


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("set TimeZone = 'UTC'")
        yield connection


@given(rows=st.lists(_ROWS, min_size=1, max_size=6), trees=st.lists(_FILTERS, min_size=1, max_size=4))
@settings(max_examples=80, deadline=None)
def test_the_rows_found_are_those_that_python_finds(
    database: duckdb.DuckDBPyConnection, rows: list[dict[str, Any]], trees: list[Filter]
) -> None:
    table = pa.Table.from_pylist([{**row, "place": place} for place, row in enumerate(rows)], _placed())
    database.register("records", table)
    for tree in trees:
        condition = compile_filter(parse(to_text(tree)), COLUMNS)
        sql = f"select place from records where {condition.sql} order by place"
        found = [place for (place,) in database.execute(sql, condition.parameters).fetchall()]
        assert found == [place for place, row in enumerate(rows) if _holds(tree, row)], to_text(tree)


def _placed() -> pa.Schema:
    return SCHEMA.append(pa.field("place", pa.int64()))


def _holds(tree: Filter, row: dict[str, Any]) -> bool:
    """The same question, asked in Python."""
    match tree:
        case And(items):
            return all(_holds(item, row) for item in items)
        case Or(items):
            return any(_holds(item, row) for item in items)
        case Not(item):
            return not _holds(item, row)
        case Absent(name, negated):
            return (_raw(row, name) is None) != negated
        case Truth(name):
            return _raw(row, name) is True
        case Among(name, values, negated):
            value = _value(row, name)
            return value is not None and (value in [_constant(name, v.value) for v in values]) != negated
        case Compare(name, operator, right):
            if isinstance(right, Name):
                left, other = _scaled(row, name), _scaled(row, right)
            else:
                left, other = _value(row, name), _constant(name, right.value)
            return left is not None and other is not None and _OPERATORS[operator](left, other)


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "contains": lambda a, b: b in a,
    "starts with": lambda a, b: a.startswith(b),
    "ends with": lambda a, b: a.endswith(b),
}


def _raw(row: dict[str, Any], name: Name) -> Any:
    return row[{"error.kind": "error_kind", "latency_ms": "latency_s"}.get(name.text, name.text)]


def _value(row: dict[str, Any], name: Name) -> Any:
    value = _raw(row, name)
    return None if isinstance(value, float) and math.isnan(value) else value


def _scaled(row: dict[str, Any], name: Name) -> Any:
    value = _value(row, name)
    return value * 1000 if name.text == "latency_ms" and value is not None else value


def _constant(name: Name, value: Any) -> Any:
    if name.text == "finished_at":
        return datetime.fromisoformat(value)
    return value / 1000 if name.text == "latency_ms" else value
