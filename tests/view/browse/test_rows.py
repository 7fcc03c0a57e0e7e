"""Rows of a run: pages, places, searches, exports; and directories that are not as a run leaves them."""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from proctor.results import RunDir, write_attempts
from proctor.rows import UserError
from proctor.rows.records import record_schema
from proctor.view.browse.rows import (
    Cursor,
    Query,
    RowTable,
    Sort,
    attempts_of,
    count,
    export_rows,
    neighbours,
    open_rows,
    page,
    records_of,
)

SCHEMA = pa.schema(
    [
        ("row_id", pa.int64()),
        ("checkpoint", pa.string()),
        ("sample_id", pa.string()),
        ("answer", pa.large_string()),
        ("error_kind", pa.string()),
        ("latency_s", pa.float64()),
        ("attempts", pa.int32()),
        ("exact", pa.bool_()),
        ("finished_at", pa.timestamp("ms", tz="UTC")),
        ("token_ids", pa.list_(pa.int32())),
        ("day", pa.date32()),
        ("weird \"'; name", pa.decimal128(9, 2)),
    ]
)
_BEGAN = datetime(2026, 11, 30, tzinfo=UTC)
_SORTABLE = [name for name in SCHEMA.names if name != "token_ids"]


def _rows(count: int, seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    maybe = lambda value: None if rng.random() < 0.3 else value  # noqa: E731
    return [
        {
            "row_id": number // 2,
            "checkpoint": f"step-{number % 2}",
            "sample_id": maybe(f"Sample {number}"),
            "answer": maybe(
                rng.choice(["", "far", "near\x00", "<script>", "äöü\U0001f600" * 60, 'quote " and \n line'])
            ),
            "error_kind": maybe("infer.crashed"),
            "latency_s": maybe(rng.choice([0.5, 1.5, math.nan, math.inf, -math.inf, -0.5])),
            "attempts": maybe(rng.randrange(3)),
            "exact": maybe(rng.random() < 0.5),
            "finished_at": maybe(_BEGAN + timedelta(milliseconds=rng.randrange(3))),
            "token_ids": maybe([1, 2, 3]),
            "day": maybe(_BEGAN.date() + timedelta(days=rng.randrange(3))),
            "weird \"'; name": maybe(rng.choice([1, 2])),
        }
        for number in range(count)
    ]


def _write(folder: Path, name: str, rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / name)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """Those of `table`, the last 6 there twice."""
    found = _rows(60, seed=7)
    return [*found, *found[-6:]]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]) -> Iterator[RowTable]:
    root = tmp_path_factory.mktemp("a 'run'")
    for number, start in enumerate((0, 20, 40, 60)):
        _write(root / "results", f"part-{number}.parquet", rows[start : start + 20])
    with open_rows(RunDir(root)) as found:
        yield found


def _ordered(rows: list[dict[str, Any]], sort: Sort) -> list[tuple[int, str]]:
    """Keys as `Sort` describes the order."""

    def absent(row: dict[str, Any]) -> bool:
        value = row[sort.column]
        return value is None or (isinstance(value, float) and math.isnan(value))

    ties = lambda row: (row["row_id"], row["checkpoint"])  # noqa: E731
    there = sorted((row for row in rows if not absent(row)), key=ties)
    there.sort(key=lambda row: _sorted_by(row[sort.column]), reverse=sort.descending)  # equal ones stay in order
    return [ties(row) for row in [*there, *sorted(filter(absent, rows), key=ties)]]


def _sorted_by(value: Any) -> Any:
    return value[:100] if isinstance(value, str) else value


@pytest.mark.parametrize("column", _SORTABLE)
@pytest.mark.parametrize("descending", [False, True])
def test_pages_follow_one_another_without_gap_or_repeat(
    table: RowTable, rows: list[dict[str, Any]], column: str, descending: bool
) -> None:
    query = Query(sort=Sort(column, descending))
    expected = _ordered(rows, query.sort)
    forwards, pages = list[tuple[int, str]](), 0
    found = page(table, query, [column], size=25)
    assert found.previous is None
    while True:
        forwards += [(row["row_id"], row["checkpoint"]) for row in found.rows]
        pages += 1
        if found.next is None:
            break
        after = Cursor.from_text(found.next.to_text(), column)
        found = page(table, query, [column], size=25, after=after)
    assert forwards == expected
    backwards = [(row["row_id"], row["checkpoint"]) for row in found.rows]
    while found.previous is not None:
        found = page(table, query, [column], size=25, before=Cursor.from_text(found.previous.to_text(), column))
        backwards = [*((row["row_id"], row["checkpoint"]) for row in found.rows), *backwards]
        pages -= 1
    assert backwards == expected
    assert pages == 1


def test_a_page_has_the_columns_asked_for_and_texts_are_cut(table: RowTable, rows: list[dict[str, Any]]) -> None:
    query = Query('sample_id = "Sample 1"')
    (row,) = page(table, query, ["token_ids", "answer", "day"]).rows
    assert list(row) == ["row_id", "checkpoint", "token_ids", "answer", "day"]
    long = page(table, Query('answer starts with "äöü"'), ["answer"]).rows
    assert long
    assert all(len(row["answer"]) == 201 for row in long)
    for bad in (["nothing"], ["answr"]):
        with pytest.raises(UserError, match="no column"):
            page(table, query, bad)


def test_a_filter_and_a_search_are_counted_and_their_neighbours_found(
    table: RowTable, rows: list[dict[str, Any]]
) -> None:
    assert count(table, Query()) == len(rows) == 66
    crashed = Query("error.kind is not null and not exact", sort=Sort("attempts", descending=True))
    expected = _ordered([r for r in rows if r["error_kind"] and r["exact"] is not True], crashed.sort)
    assert count(table, crashed) == len(expected)
    once = [key for place, key in enumerate(expected) if key not in expected[:place]]
    between = neighbours(table, crashed, *once[3])
    assert (between.previous, between.next) == (once[2], once[4])
    assert neighbours(table, crashed, *once[0]).previous is None
    assert neighbours(table, crashed, 999, "step-0") == (none := neighbours(table, crashed, 1, "nothing"))
    assert (none.previous, none.next) == (None, None)
    assert count(table, Query(search="SAMPLE 1")) == sum("Sample 1" in (row["sample_id"] or "") for row in rows)
    assert count(table, Query(search="' or 1=1 --")) == 0
    assert count(table, Query(search="ÄÖÜ")) == count(table, Query('answer contains "äöü"'))


@pytest.mark.parametrize(
    ("query", "says"),
    [
        (Query("answr = 'x'"), "did you mean answer?"),
        (Query(sort=Sort("token_ids")), "cannot be sorted by token_ids"),
        (Query(sort=Sort("atempts")), "did you mean attempts?"),
        (Query(search="x" * 501), "a search of more than"),
        (Query(search="\ud800"), "half a character"),
    ],
)
def test_what_cannot_be_asked_is_said(table: RowTable, query: Query, says: str) -> None:
    with pytest.raises(UserError) as told:
        page(table, query, [])
    assert says in str(told.value)


def test_a_place_that_is_none_is_refused(table: RowTable) -> None:
    place = Cursor("row_id", 3, 3, "step-0", "part-0.parquet", 6)
    good = place.to_text()
    assert Cursor.from_text(good, "row_id") == place
    bad = [
        place._replace(value="3"),
        place._replace(value=True),
        place._replace(row_id=2**70),
        place._replace(value=2**200),
        place._replace(checkpoint=3),  # type: ignore[arg-type]
        place._replace(sort="answer"),
    ]
    for text in ["", "!", "AAAA", good[:-3], good * 50, "W10", "é", *(cursor.to_text() for cursor in bad)]:
        with pytest.raises(UserError, match="no place in these rows"):
            page(table, Query(), [], after=Cursor.from_text(text, "row_id"))


def test_what_is_exported_is_what_is_shown(table: RowTable, rows: list[dict[str, Any]]) -> None:
    query = Query("attempts >= 1", sort=Sort("latency_s", descending=True))
    expected = _ordered([row for row in rows if (row["attempts"] or 0) >= 1], query.sort)
    written = export_rows(table, query, "csv")
    with written.open(encoding="utf-8", newline="") as file:
        read = list(csv.DictReader(line.replace("\0", "") for line in file))
    assert [(int(row["row_id"]), row["checkpoint"]) for row in read] == expected
    parquet = pq.read_table(export_rows(table, query, "parquet"))
    assert parquet.schema.names == SCHEMA.names
    keys = zip(parquet["row_id"].to_pylist(), parquet["checkpoint"].to_pylist(), strict=True)
    assert list(keys) == expected
    ids = export_rows(table, query, "ids").read_text().splitlines()
    assert ids == [str(number) for number in sorted({row_id for row_id, _ in expected})]
    assert export_rows(table, Query("attempts > 5"), "ids").read_text() == ""


def test_a_table_reads_its_parts_and_nothing_else(tmp_path: Path) -> None:
    results, outside = tmp_path / "run" / "results", tmp_path / "outside"
    with open_rows(RunDir(tmp_path / "run")) as empty:  # nothing there yet
        assert page(empty, Query(), ["error_kind"]).rows == []
    _write(outside, "secret.parquet", _rows(4, seed=1))
    _write(results, "part-good.parquet", _rows(4, seed=2))
    (results / "part-bad.parquet").write_bytes(b"PAR1 and no more")
    (results / "part-link.parquet").symlink_to(outside / "secret.parquet")
    (results / "notes.txt").write_text("not a part")
    with open_rows(RunDir(tmp_path / "run")) as found:
        assert found.parts == ("part-good.parquet",)
        assert count(found, Query()) == 4
        reasons = dict(found.damaged)
        assert "symbolic link" in reasons["part-link.parquet"]
        assert "damaged" in reasons["part-bad.parquet"]
        with pytest.raises(UserError, match="cannot be read"):
            found.ask("select * from read_parquet(?)", [str(outside / "secret.parquet")])
        with pytest.raises(UserError, match="cannot be read"):
            found.ask("set enable_external_access = true")
        (results / "part-good.parquet").unlink()  # the run was put aside while it was looked at
        with pytest.raises(UserError, match="cannot be read"):
            page(found, Query(), [])
        scratch = found.scratch
    assert not scratch.exists()


def test_parts_that_are_no_records_are_refused(tmp_path: Path) -> None:
    results = tmp_path / "results"
    _write(results, "part-a.parquet", [{"row_id": "x"}], pa.schema([("row_id", pa.string())]))
    with pytest.raises(UserError, match="these are no records: row_id, checkpoint"), open_rows(RunDir(tmp_path)):
        pass
    _write(results, "part-a.parquet", [{"row_id": None, "checkpoint": "c"}, {"row_id": 1, "checkpoint": "c"}])
    with pytest.raises(UserError, match="1 records are of no row"), open_rows(RunDir(tmp_path)):
        pass
    _write(results, "part-b.parquet", [{"proctor part": 1}], pa.schema([("proctor part", pa.int64())]))
    with pytest.raises(UserError, match="do not fit together"), open_rows(RunDir(tmp_path)):
        pass


def test_texts_of_ten_megabytes_are_cut_in_the_database(tmp_path: Path) -> None:
    huge = [
        {"row_id": n, "checkpoint": "c", "answer": chr(97 + n) * 10_000_000, "error_message": "x"} for n in range(6)
    ]
    _write(tmp_path / "results", "part-a.parquet", huge)
    with open_rows(RunDir(tmp_path)) as found:
        first = page(found, Query(sort=Sort("answer", descending=True)), ["answer"], size=2)
        assert [row["answer"] for row in first.rows] == ["f" * 201, "e" * 201]
        assert first.next is not None
        assert len(first.next.to_text()) < 500
        assert count(found, Query('answer contains "ccc"')) == 1


def test_a_row_is_read_whole_with_its_tries(table: RowTable, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    (record,) = records_of(table, 1, "step-0")
    assert record["answer"] == rows[2]["answer"]
    assert record["token_ids"] in (None, "[1, 2, 3]")
    assert [found["checkpoint"] for found in records_of(table, 29)] == ["step-0", "step-0", "step-1", "step-1"]
    assert records_of(table, 10**30) == records_of(table, 1, "nothing") == []
    run = RunDir(tmp_path)
    schema = record_schema({})
    for sweep, kind in ((2, "infer.stalled"), (1, "lost")):
        tries = [{"row_id": n, "checkpoint": "a-b", "sweep": sweep, "error_kind": kind} for n in (3, 5)]
        write_attempts(run.attempts, pa.Table.from_pylist(tries, schema))
    (tmp_path / "attempts" / "try-a-b-003-0000000005-0000000005-0123456789abcdef.parquet").write_bytes(b"PAR1")
    assert [found["error_kind"] for found in attempts_of(run, 5, "a-b")] == ["lost", "infer.stalled"]
    assert attempts_of(run, 4, "a-b") == attempts_of(run, 5, "a") == []
