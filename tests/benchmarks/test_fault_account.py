"""The accounting of the fault matrix: result files with known defects give exactly those numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.faults.account import Account, Record, account, fate
from benchmarks.faults.data import HIT, answer_of, truth
from benchmarks.faults.matrix import FAULTS
from benchmarks.faults.report import BAD, recovery, sound
from benchmarks.faults.systems import SYSTEMS

RIGHT = {row: answer_of(row) for row in range(10)}


def part(path: Path, *rows: tuple[int, str | None, str | None]) -> Path:
    names = ("row_id", "answer", "error_kind")
    schema = pa.schema([("row_id", pa.int64()), ("answer", pa.string()), ("error_kind", pa.string())])
    pq.write_table(pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=schema), path)
    return path


def good(*rows: int) -> list[tuple[int, str | None, str | None]]:
    return [(row, answer_of(row), None) for row in rows]


def test_a_whole_result_has_nothing_to_report(tmp_path: Path) -> None:
    files = [part(tmp_path / "a.parquet", *good(0, 1, 2, 3, 4)), part(tmp_path / "b.parquet", *good(9, 8, 7, 6, 5))]
    assert account(files, RIGHT, set()) == Account(10, 10, 0, 0, 0, 0, 0, 0, 0, 0)


def test_each_defect_is_counted_once_and_where_it_belongs(tmp_path: Path) -> None:
    first = part(
        tmp_path / "a.parquet",
        *good(0, 1),
        (2, None, "infer.crashed"),  # guilty
        (3, None, "lost"),  # an innocent with a tombstone
        (4, "", None),  # blank
        (5, " \n", None),  # blank, too; guilty
        (6, "answer 00007", None),  # another row's answer
    )
    second = part(tmp_path / "b.parquet", *good(0, 1, 1))
    stranger = part(tmp_path / "c.parquet", (77, "answer 00077", None))
    cut = tmp_path / "d.parquet"
    cut.write_bytes(first.read_bytes()[:100])
    found = account([first, second, stranger, cut], RIGHT, {2, 5})
    assert found == Account(
        rows=10,
        answered=2,
        errors=2,
        truncated=0,
        wrong=1,
        blank_as_success=2,
        lost=3,  # 7, 8, 9
        duplicated=4,  # 0 once more, 1 twice more, 77
        innocents_harmed=6,  # 3, 4, 6, 7, 8, 9
        unreadable=1,
    )


def test_files_without_a_column_for_errors_have_none(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"row_id": [0, 1], "answer": [answer_of(0), ""]}), path)
    found = account([path], RIGHT, set())
    assert (found.answered, found.blank_as_success, found.errors, found.lost) == (1, 1, 0, 8)


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([Record("x", None)], "answered"),
        ([Record(None, "lost"), Record("x", None)], "answered"),
        ([Record("x", "infer.failed")], "errors"),
        ([Record("y", None), Record(None, "infer.failed")], "errors"),
        ([Record("", None), Record("y", None)], "wrong"),
        ([Record("y", None, "length")], "truncated"),
        ([Record("y", None, "stop")], "wrong"),
        ([Record(None, None)], "blank_as_success"),
        ([], "lost"),
    ],
)
def test_the_best_record_of_a_row_decides(records: list[Record], expected: str) -> None:
    assert fate(records, "x") == expected


def row(fault: str, **values: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(BAD, 0)
    return {
        "system": "naive",
        "fault": fault,
        "answered": 1,
        **nothing,
        "seconds": 10.0,
        "restart_seconds": None,
        **values,
    }


def test_recovery_is_counted_against_the_control_or_from_the_restart_on() -> None:
    faults = {fault.name: fault for fault in FAULTS}
    rows = [
        row("none"),
        row("none.own_ray", seconds=30.0),
        row("engine.exit", seconds=14.5),
        row("ray.store_small", seconds=29.0),
        row("driver.sigkill", seconds=40.0, restart_seconds=12.0),
        row("data.image", seconds=None),
    ]
    found = {(entry["fault"], entry["system"]): entry for entry in rows}
    values = {entry["fault"]: recovery(found, faults[entry["fault"]], "naive") for entry in rows}
    assert values == {
        "none": 0.0,
        "none.own_ray": 0.0,
        "engine.exit": 4.5,
        "ray.store_small": 0.0,
        "driver.sigkill": 12.0,
        "data.image": None,
    }


@pytest.mark.parametrize("name", BAD)
def test_one_loss_of_any_sort_is_not_sound(name: str) -> None:
    assert sound(row("none"))
    assert not sound(row("none", **{name: 1}))


def test_the_matrix_is_what_it_says() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(names) == len(set(names)) >= 30
    assert list(SYSTEMS) == ["proctor", "naive", "naive+checkpoint"]
    assert len(truth()) == 2000
    assert all(fault.guilty < truth().keys() for fault in FAULTS)
    guilty = {fault.name: len(fault.guilty) for fault in FAULTS}
    assert guilty["engine.segfault.neighbours"] == 40
    assert guilty["engine.segfault.once"] == 0
    assert guilty["engine.blank"] == 1360
    assert guilty["data.shard_cut"] == 100 - HIT % 100
