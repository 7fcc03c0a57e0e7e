"""The filter language: what it means, what it refuses, and what may come next."""

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
    MOST_CHARACTERS,
    MOST_DEPTH,
    Columns,
    FilterError,
    compile_filter,
    complete,
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

TYPES = {
    "row_id": "BIGINT",
    "answer": "VARCHAR",
    "error_kind": "VARCHAR",
    "latency_s": "DOUBLE",
    "attempts": "INTEGER",
    "exact": "BOOLEAN",
    "finished_at": "TIMESTAMP WITH TIME ZONE",
    "token_ids": "INTEGER[]",
    'my "odd` name': "VARCHAR",
    "and": "DOUBLE",
}
COLUMNS = Columns(TYPES)
SCHEMA = pa.schema(
    [
        ("row_id", pa.int64()),
        ("answer", pa.large_string()),
        ("error_kind", pa.string()),
        ("latency_s", pa.float64()),
        ("attempts", pa.int32()),
        ("exact", pa.bool_()),
        ("finished_at", pa.timestamp("ms", tz="UTC")),
        ("token_ids", pa.list_(pa.int32())),
        ('my "odd` name', pa.string()),
        ("and", pa.float64()),
    ]
)
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


@given(st.text(max_size=60) | st.text("ab_.()\"'`=<>!,-+0129 \\notandrisull", max_size=40))
@settings(max_examples=300, deadline=None)
def test_whatever_is_typed_is_a_filter_or_one_kind_of_error(text: str) -> None:
    for candidate in complete(text, COLUMNS):
        assert text[: candidate.start] + candidate.text != text
    try:
        tree = parse(text)
        compile_filter(tree, COLUMNS)
    except FilterError as caught:
        error = caught
    else:
        assert tree is None or parse(to_text(tree)) == tree
        return
    assert 0 <= error.start <= error.end <= len(text)
    assert str(error).startswith("filter, character ")


@pytest.mark.parametrize(
    ("text", "start", "says"),
    [
        ('error.knd = "x"', 0, "no column 'error.knd' (did you mean error.kind?)"),
        ("latency_ms > 5 and answr = 'x'", 19, "no column 'answr' (did you mean answer?)"),
        ('latency_ms > "5"', 13, "latency_ms holds numbers, not this (a number stands without quotation marks)"),
        ("answer = 5", 9, "answer holds texts, not this (texts stand in quotation marks)"),
        ("answer = far", 9, "no column 'far'"),
        ("row_id contains 'x'", 0, "only texts can be asked what they contain"),
        ("answer contains row_id", 16, "texts stand in quotation marks"),
        ("answer < attempts", 9, "answer holds texts, attempts numbers: they cannot be compared"),
        ("answer", 0, "by itself it is no question (compare it, or write: answer is not null)"),
        ("token_ids = 5", 12, "can only be asked for null"),
        ("exact = null", 8, "(write: is null)"),
        ("finished_at > 'noon'", 14, 'not a time (a time is written "2026-11-30 10:00", in UTC)'),
        ("finished_at > '0001-01-01T00:00+14:00'", 14, "not a time"),
        ("exact && exact", 6, "did you mean and?"),
        ("exact exact", 6, "an operator is expected"),
        ("exact)", 5, "a ) without its ("),
        ("(exact", 6, "a ) is missing"),
        ('answer = "a', 9, "this text has no end"),
        (r'answer = "\d"', 10, r"no such escape: '\\d'"),
        ("answer not contains 'x'", 11, "or write: not answer"),
        ("attempts = 1" + "0" * 38, 11, "too large"),
        ("attempts = 1e999", 11, "too large"),
        ("attempts = 5x", 11, "not a number"),
        ("contains = 1", 0, "a column of that name is written `contains`"),
        ("answer = '\ud800'", 10, "half a character"),
        ("(" * (MOST_DEPTH + 1), MOST_DEPTH, f"more than {MOST_DEPTH} levels"),
        ("not " * 2_000, 4 * MOST_DEPTH, f"more than {MOST_DEPTH} levels"),
        ("x" * (MOST_CHARACTERS + 1), MOST_CHARACTERS, "longer than 8,000 characters"),
    ],
)
def test_an_error_says_where_and_what_was_meant(text: str, start: int, says: str) -> None:
    with pytest.raises(FilterError) as told:
        compile_filter(parse(text), COLUMNS)
    assert told.value.start == start
    assert says in str(told.value)


def test_a_row_matches_a_filter_or_its_not_and_what_is_typed_never_becomes_sql() -> None:
    rows = pa.Table.from_pylist([{"row_id": 0}, {"row_id": 1, "latency_s": 0.29, "answer": "a' or 1=1 --"}], SCHEMA)
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("records", rows)

        def count(text: str) -> int:
            condition = compile_filter(parse(text), COLUMNS)
            assert "1=1" not in condition.sql
            sql = f"select count(*) from records where {condition.sql}"
            return int(connection.execute(sql, condition.parameters).fetchall()[0][0])

        assert count("latency_ms = 290") == 1  # 0.29 s, whatever 0.29 * 1000 rounds to
        for text in ('answer = "a\' or 1=1 --"', "latency_ms > 5", "answer not in ('x')", "exact", "answer is null"):
            assert count(text) + count(f"not ({text})") == 2
        assert count("answer IS NULL or exact") == 1
        assert count(" or ".join(["attempts = 1"] * 500)) == 0
        assert count("") == 2


@pytest.mark.parametrize(
    ("text", "among", "start"),
    [
        ("", ["answer", "error.kind", "latency_ms", "not", "("], 0),
        ("erro", ["error_kind", "error.kind"], 0),
        ("exact and lat", ["latency_s", "latency_ms"], 10),
        ("my", ['`my "odd`` name`'], 0),
        ("mine", [], 0),
        ("`my", ['`my "odd`` name`'], 0),
        ("answer ", ["contains", "=", "is null"], 7),
        ("answer star", ["starts with"], 7),
        ("answer starts ", ["with"], 14),
        ("attempts ", [">=", "in"], 9),
        ("token_ids ", ["is null", "is not null"], 10),
        ("(exact", ["and", "or"], 6),
        ("(exact ", ["and", "=", "is null"], 7),
        ("(exact = true ", ["and", "or", ")"], 14),
        ("exact = ", ["true", "false"], 8),
        ("error.kind = ", ['"infer.crashed"', '"lost"'], 13),
        ('error.kind = "inf', ['"infer.crashed"'], 13),
        ('error.kind in ("lost", ', ['"infer.crashed"'], 23),
        ("answer is ", ["null", "not"], 10),
        ("nothing = ", [], 0),
        ("exact exact ", [], 0),
    ],
)
def test_completion(text: str, among: list[str], start: int) -> None:
    found = complete(text, COLUMNS, {"error_kind": ["infer.crashed", "lost"]})
    assert set(among) <= {candidate.text for candidate in found}
    assert bool(found) == bool(among)
    assert all(candidate.start == start and candidate.end == len(text) for candidate in found)


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
