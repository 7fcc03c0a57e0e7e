from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from proctor.results import (
    lift_tombstones,
    reconcile,
    settle,
    write_attempts,
    write_records,
    write_tombstones,
)
from proctor.results.files import write_json
from proctor.results.parts import checkpoint_of, is_tombstone, parts_of
from proctor.results.settle import done_ids
from proctor.rows.records import record_schema

SCHEMA = record_schema({"score": pa.float64()})


def record(row_id: int, checkpoint: str = "ck", **fields: Any) -> dict[str, Any]:
    answer = None if fields.get("error_kind") else f"answer {row_id}"
    base = {"row_id": row_id, "checkpoint": checkpoint, "answer": answer, "sweep": 1}
    return {**base, "finished_at": datetime.now(UTC), **fields}


def table(*records: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(records), schema=SCHEMA)


def stored_ids(results: Path, checkpoint: str = "ck") -> list[int]:
    return sorted(i for p in parts_of(results, checkpoint) for i in pq.read_table(p)["row_id"].to_pylist())


def test_json_files_are_json_whatever_the_numbers_are(tmp_path: Path) -> None:
    write_json(tmp_path / "metrics.json", {"a": float("nan"), "b": [float("inf")], "ü": 1})
    text = (tmp_path / "metrics.json").read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=pytest.fail) == {"a": None, "b": [None], "ü": 1}


def test_writing_the_same_rows_again_overwrites(tmp_path: Path) -> None:
    for order in ([3, 1, 2], [1, 2, 3]):
        write_records(tmp_path, table(*(record(i) for i in order)))
    assert stored_ids(tmp_path) == [1, 2, 3]
    assert len(list(tmp_path.iterdir())) == 1


def test_each_checkpoint_has_parts_of_its_own_and_names_may_hold_dashes(tmp_path: Path) -> None:
    write_records(tmp_path, table(record(1, "step-0100"), record(1, "step-0100-b"), record(2, "step-0100")))
    assert stored_ids(tmp_path, "step-0100") == [1, 2]
    assert stored_ids(tmp_path, "step-0100-b") == [1]
    assert {checkpoint_of(p) for p in parts_of(tmp_path)} == {"step-0100", "step-0100-b"}


def test_every_part_has_the_same_schema_whatever_happened(tmp_path: Path) -> None:
    write_records(tmp_path, table(record(1, error_kind="infer.empty", error_message="blank")))
    write_records(tmp_path, table(record(2, score=0.5)))
    schemas = [pq.read_schema(p) for p in parts_of(tmp_path)]
    assert len(schemas) == 2
    assert schemas[0].equals(schemas[1])
    assert pq.read_table(tmp_path)["error_kind"].type == pa.string()


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", fail)
    with pytest.raises(OSError, match="No space"):
        write_records(tmp_path, table(record(1)))
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_was_written_twice_is_settled_to_one(tmp_path: Path) -> None:
    results = tmp_path / "results"
    write_records(results, table(record(1), record(2), record(3)))
    write_records(results, table(record(2), record(3), record(4)))
    before = reconcile(results, "ck", BitMap64(range(1, 5)))
    assert (before.duplicate, before.duplicate_ids) == (2, [2, 3])
    assert not before.complete
    settled = settle(results, "ck")
    assert settled.duplicates == 2
    assert settled.done == BitMap64([1, 2, 3, 4])
    assert stored_ids(results) == [1, 2, 3, 4]
    assert settle(results, "ck").duplicates == 0


def test_a_broken_part_is_set_aside_and_its_rows_are_open_again(tmp_path: Path) -> None:
    results = tmp_path / "results"
    write_records(results, table(record(1)))
    (broken,) = write_records(results, table(record(2), record(3)))
    broken.write_bytes(broken.read_bytes()[:-10])
    assert done_ids(results, "ck") == BitMap64([1])
    settled = settle(results, "ck")
    assert settled.done == BitMap64([1])
    assert settled.set_aside == [broken.name]
    assert (tmp_path / "aside" / broken.name).is_file()


@settings(max_examples=60, deadline=None)
@example(groups=[{0}, {0, 15}, {15}])
@given(st.lists(st.sets(st.integers(0, 30), min_size=1), max_size=6))
def test_settling_any_overlap_keeps_every_key_exactly_once(groups: list[set[int]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        for group in groups:
            write_records(results, table(*(record(i) for i in group)))
        everything = set().union(*groups) if groups else set()
        settled = settle(results, "ck")
        assert set(settled.done) == everything
        assert stored_ids(results) == sorted(everything)
        assert reconcile(results, "ck", BitMap64(everything)).complete


def test_tombstones_tell_the_last_error_and_give_way(tmp_path: Path) -> None:
    results, attempts = tmp_path / "results", tmp_path / "attempts"
    write_records(results, table(record(0)))
    tried = record(1, sample_id="k1", error_kind="engine.init_failed", error_message="no memory")
    write_attempts(attempts, table(tried))
    write_tombstones(tmp_path, "ck", BitMap64([1, 2]), SCHEMA, sweep=3)
    ledger = reconcile(results, "ck", BitMap64(range(3)))
    assert ledger.answered == 1
    assert ledger.unanswered == {"engine.init_failed": 1, "lost": 1}
    assert (ledger.missing, ledger.complete) == (0, False)
    stored = {r["row_id"]: r["sample_id"] for p in parts_of(results) for r in pq.read_table(p).to_pylist()}
    assert stored == {0: None, 1: "k1", 2: None}
    assert settle(results, "ck").done == BitMap64([0])
    assert lift_tombstones(results, "ck") == 2
    assert not any(is_tombstone(p) for p in parts_of(results))
    assert reconcile(results, "ck", BitMap64(range(3))).missing_ids == [1, 2]


def test_the_ledger_counts_kinds_missing_and_unexpected(tmp_path: Path) -> None:
    write_records(
        tmp_path,
        table(
            record(0),
            record(1, error_kind="infer.empty", error_message="blank"),
            record(2, error_kind="infer.empty", error_message="blank"),
            record(3, error_kind="read.corrupt", error_message="bad", notice="shard 0 holds 9 rows, its index says 8"),
            record(9),
        ),
    )
    ledger = reconcile(tmp_path, "ck", BitMap64(range(6)))
    assert (ledger.expected, ledger.answered) == (6, 2)
    assert ledger.errors == {"infer.empty": 2, "read.corrupt": 1}
    assert (ledger.missing_ids, ledger.unexpected_ids) == ([4, 5], [9])
    assert ledger.notices == ["shard 0 holds 9 rows, its index says 8"]
    assert not ledger.complete
    assert ledger.error_rate == 0.5


def test_unparsed_and_truncated_answers_are_counted(tmp_path: Path) -> None:
    write_records(
        tmp_path,
        table(
            record(0, parse_error="names none of the labels", finish_reason="length"),
            record(1, finish_reason="length"),
            record(2, finish_reason="stop"),
        ),
    )
    ledger = reconcile(tmp_path, "ck", BitMap64(range(3)))
    assert (ledger.answered, ledger.unparsed, ledger.truncated) == (3, 1, 2)
    assert ledger.complete


def test_a_notice_alone_keeps_a_run_from_being_complete(tmp_path: Path) -> None:
    write_records(tmp_path, table(record(0, notice="more rows than the index says")))
    ledger = reconcile(tmp_path, "ck", BitMap64([0]))
    assert ledger.answered == ledger.expected == 1
    assert not ledger.complete
