"""The filter language: what it refuses, how it says so, and what may come next."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.view.browse.filters import (
    MOST_CHARACTERS,
    MOST_DEPTH,
    FilterError,
    compile_filter,
    complete,
    parse,
    to_text,
)
from tests.view.browse.columns import COLUMNS, SCHEMA


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
