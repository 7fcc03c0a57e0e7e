"""Runs that are large: which parts are opened, the index, exports in pieces, and questions that take too long."""

from __future__ import annotations

import csv
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from proctor.results import RunDir
from proctor.rows import UserError
from proctor.view.browse.rows import (
    Query,
    RowTable,
    Sort,
    count,
    export_rows,
    lists_of,
    neighbours,
    open_rows,
    page,
    records_of,
)
from proctor.view.browse.rows import export as exporting
from proctor.view.browse.rows import index as indexing
from proctor.view.browse.rows import table as tables
from proctor.view.browse.rows.parts import Part, nearest, read_parts
from proctor.view.browse.rows.patience import Patience

_ENDLESS = "select count(*) from range(10000000000) a, range(10000000000) b where a.range % 7 = b.range % 5"
_SCHEMA = pa.schema(
    [
        ("row_id", pa.int64()),
        ("checkpoint", pa.string()),
        ("answer", pa.string()),
        ("label", pa.string()),
        ("wordy", pa.string()),
        ("score", pa.float64()),
        ("right", pa.bool_()),
        ("logprobs", pa.list_(pa.float32())),
        ("=way", pa.list_(pa.list_(pa.float64()))),
    ]
)


def _row(row_id: int, rng: random.Random) -> dict[str, Any]:
    return {
        "row_id": row_id,
        "checkpoint": "c",
        "answer": rng.choice(["=1+1", "-3", "plain", None]),
        "label": rng.choice(["near", "far", None]),
        "wordy": "x" * 300,
        "score": rng.choice([0.5, -1.5, float("nan"), None]),
        "right": rng.random() < 0.5,
        "logprobs": [-0.5] * 3000 if row_id == 3 else None,
        "=way": [[1.0, 2.0, 3.0], None, [4.0]],
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """Seven parts of 10 rows by row id, and one of two rows that lies across all of them."""
    root, rng = tmp_path_factory.mktemp("large"), random.Random(3)
    (root / "results").mkdir()
    spans = [list(range(10 * n, 10 * n + 10)) for n in range(7)] + [[5, 65]]
    for number, ids in enumerate(spans):
        rows = pa.Table.from_pylist([_row(row_id, rng) for row_id in ids], _SCHEMA)
        pq.write_table(rows, root / "results" / f"part-{number}.parquet")
    return RunDir(root)


@pytest.fixture(scope="module")
def table(run: RunDir) -> Iterator[RowTable]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "LEAST_ROWS", 1)
        patch.setattr(indexing, "_PAUSE", 0.0)
        with open_rows(run) as found:
            assert found.index is not None
            assert found.index.wait(60)
            yield found


def test_the_parts_that_hold_the_next_rows_are_found_by_their_footers() -> None:
    rng = random.Random(5)
    for _ in range(300):
        held = [sorted(rng.choices(range(40), k=rng.randrange(1, 6))) for _ in range(rng.randrange(1, 9))]
        parts = [Part(str(n), Path(), len(ids), ids[0], ids[-1], True) for n, ids in enumerate(held)]
        if rng.random() < 0.2:
            parts[0] = replace(parts[0], first=Part("", Path(), 0).first, last=Part("", Path(), 0).last)
        falling, most, at = rng.random() < 0.5, rng.randrange(1, 12), rng.choice([None, rng.randrange(40)])
        chosen = {int(part.name) for part in nearest(parts, at, most, falling=falling)}
        order = sorted(((i, n) for n, ids in enumerate(held) for i in ids), reverse=falling)
        beyond = [(i, n) for i, n in order if at is None or (i <= at if falling else i >= at)]
        edge = len([i for i, _ in beyond if i == at]) + most
        assert {n for _, n in beyond[:edge]} <= chosen


def test_only_parts_that_may_hold_a_row_are_opened(run: RunDir) -> None:
    parts = read_parts(run)
    first = parts.found["part-0.parquet"]
    assert (first.rows, first.first, first.last, first.keyed) == (10, 0, 9, True)
    with open_rows(run) as found:
        assert "part-3" not in found.holding([25])
        assert "part-2" in found.holding([25])
        assert [name for name in found.parts if name in found.next_to(31, 3, falling=False)] == [
            "part-3.parquet",
            "part-4.parquet",
            "part-7.parquet",
        ]
        assert found.index is None  # it is no large run
        beside = neighbours(found, Query(), 30, "c")
        assert (beside.previous, beside.next) == ((29, "c"), (31, "c"))


def test_footers_are_read_whatever_the_order_of_their_columns(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    for number, names in enumerate((["row_id", "checkpoint"], ["checkpoint", "n", "row_id"], ["row_id", "checkpoint"])):
        columns = {"row_id": [number, 10 + number], "checkpoint": ["c", "c"], "n": [77, 78]}
        pq.write_table(
            pa.table({name: columns[name] for name in names}), tmp_path / "results" / f"part-{number}.parquet"
        )
    parts = read_parts(RunDir(tmp_path))
    assert not parts.alike
    assert [(part.first, part.last, part.keyed) for part in parts.found.values()] == [
        (0, 10, True),
        (1, 11, True),
        (2, 12, True),
    ]
    with open_rows(RunDir(tmp_path)) as found:
        assert [row["n"] for row in page(found, Query(), ["n"]).rows] == [None, 77, None, None, 78, None]
        assert records_of(found, 11)[0]["n"] == 78


def test_through_the_index_everything_is_as_in_the_parts(table: RowTable) -> None:
    plain = replace(table, index=None, counted={})
    assert table.having(["label", "score", "right", "row_id"]) != "records"
    assert table.having(["answer"]) == table.having(["wordy"]) == table.having(["=way"]) == "records"
    queries = [
        Query(text, search, Sort(column, down))
        for text in ("", "label = 'near' and not right", "score > -2 or label is null", "answer is null")
        for search, column, down in (
            ("", "row_id", True),
            ("", "label", False),
            ("", "score", True),
            ("NEAR", "score", False),
            ("", "answer", False),
        )
    ]
    for query in queries:
        assert count(table, query) == count(plain, query)
        one, other = (page(each, query, ["label", "wordy"], size=20) for each in (table, plain))
        assert one == other
        if one.next is not None:
            assert page(table, query, [], size=9, before=one.next) == page(plain, query, [], size=9, before=one.next)
        assert neighbours(table, query, 40, "c") == neighbours(plain, query, 40, "c")


def test_an_index_that_is_being_made_is_no_hindrance_to_closing(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "LEAST_ROWS", 1)
    for pause in (0.0, 3600.0):
        monkeypatch.setattr(indexing, "_PAUSE", pause)
        with open_rows(run) as found:
            assert count(found, Query("right")) == count(replace(found, index=None, counted={}), Query("right"))
        assert found.index is not None
        assert not found.scratch.exists()


def test_a_run_under_way_has_no_index(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "LEAST_ROWS", 1)
    monkeypatch.setattr(tables, "seems_held", lambda _: True)
    with open_rows(run) as found:
        assert found.index is None


@pytest.mark.parametrize("sort", [Sort(), Sort("row_id", descending=True), Sort("score")])
def test_pieces_of_an_export_are_one_file_in_order(
    table: RowTable, sort: Sort, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query("right or label = 'far'", sort=sort)
    monkeypatch.setattr(exporting, "_SPAN_ROWS", 1)
    keys = [row["row_id"] for row in page(table, query, [], size=500).rows]
    parquet = pq.read_table(export_rows(table, query, "parquet"))
    assert parquet["row_id"].to_pylist() == keys
    assert parquet.schema.names == _SCHEMA.names
    assert set(parquet["answer"].to_pylist()) == {"=1+1", "-3", "plain", None}
    with export_rows(table, query, "csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [int(line["row_id"]) for line in lines] == keys
    assert not any(path.is_dir() for path in table.scratch.iterdir())


def test_a_text_is_no_formula_in_an_export_and_a_number_stays_one(table: RowTable) -> None:
    with export_rows(table, Query(), "csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert {line["answer"] for line in lines} == {"'=1+1", "'-3", "plain", ""}
    assert "-1.5" in {line["score"] for line in lines}
    assert "'=way" in lines[0]


def test_an_export_of_runs_that_do_not_lie_apart_is_in_order(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_rows(run) as found:
        monkeypatch.setattr(exporting, "_SPAN_ROWS", 1)
        del found.files.found["part-7.parquet"]  # then all lie apart
        rows = pq.read_table(export_rows(found, Query(sort=Sort("row_id", descending=True)), "parquet"))
        assert rows["row_id"].to_pylist() == list(range(69, -1, -1))


def test_numbers_and_points_of_a_row_are_read_bounded(table: RowTable) -> None:
    (record,) = records_of(table, 3)
    (lists,) = lists_of(table, 3, "c")
    assert record["row_id"] == 3
    assert lists["logprobs"] == [-0.5] * 2000
    assert lists["=way"] == [[1.0, 2.0], None, [4.0]]
    assert [set(lists) for lists in lists_of(table, 5)] == [{"=way"}, {"=way"}]
    assert lists_of(table, 10**30) == []


def test_a_question_that_takes_too_long_is_ended(table: RowTable) -> None:
    with pytest.raises(UserError, match=r"takes longer than 0\.2 s"):
        table.within(Patience(0.2)).ask(_ENDLESS)
    assert count(table.within(Patience(60)), Query()) == 72


def test_a_question_ends_when_nobody_waits_for_its_answer(table: RowTable) -> None:
    patience, ended = Patience(3600), threading.Event()

    def ask() -> None:
        with pytest.raises(UserError, match="was ended"):
            table.within(patience).ask(_ENDLESS)
        ended.set()

    asking = threading.Thread(target=ask)
    asking.start()
    patience.give_up()
    assert ended.wait(60)
    asking.join()
    left = set(table.scratch.iterdir())
    for form in ("csv", "ids"):
        with pytest.raises(UserError, match="was ended"):
            export_rows(table.within(patience), Query(), form)
    assert set(table.scratch.iterdir()) == left
