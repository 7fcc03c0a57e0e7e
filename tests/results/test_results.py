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
from proctor.results.parts import checkpoint_of, is_tombstone, parts_of, read_ids
from proctor.results.settle import done_ids
from proctor.rows.records import record_schema
from proctor.storage.connect import StorageOptions
from proctor.storage.folder import Folder, LocalFolder, StorageError, open_folder
from tests.storage.bucket import Bucket

SCHEMA = record_schema({"score": pa.float64()})


def record(row_id: int, checkpoint: str = "ck", **fields: Any) -> dict[str, Any]:
    answer = None if fields.get("error_kind") else f"answer {row_id}"
    base = {"row_id": row_id, "checkpoint": checkpoint, "answer": answer, "sweep": 1}
    return {**base, "finished_at": datetime.now(UTC), **fields}


def table(*records: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(records), schema=SCHEMA)


def stored_ids(results: Folder, checkpoint: str = "ck") -> list[int]:
    return sorted(i for p in parts_of(results, checkpoint) for i in read_ids(results.open(p)).tolist())


@pytest.fixture
def results(run_folder: Folder) -> Folder:
    return run_folder.below("results")


def test_json_files_are_json_whatever_the_numbers_are(run_folder: Folder) -> None:
    write_json(run_folder, "metrics.json", {"a": float("nan"), "b": [float("inf")], "ü": 1})
    text = run_folder.read("metrics.json").decode()
    assert json.loads(text, parse_constant=pytest.fail) == {"a": None, "b": [None], "ü": 1}


def test_writing_the_same_rows_again_overwrites(results: Folder) -> None:
    for order in ([3, 1, 2], [1, 2, 3]):
        write_records(results, table(*(record(i) for i in order)))
    assert stored_ids(results) == [1, 2, 3]
    assert len(results.names()) == 1


def test_each_checkpoint_has_parts_of_its_own_and_names_may_hold_dashes(results: Folder) -> None:
    write_records(results, table(record(1, "step-0100"), record(1, "step-0100-b"), record(2, "step-0100")))
    assert stored_ids(results, "step-0100") == [1, 2]
    assert stored_ids(results, "step-0100-b") == [1]
    assert {checkpoint_of(p) for p in parts_of(results)} == {"step-0100", "step-0100-b"}


def test_every_part_has_the_same_schema_whatever_happened(results: Folder) -> None:
    write_records(results, table(record(1, error_kind="infer.empty", error_message="blank")))
    write_records(results, table(record(2, score=0.5)))
    schemas = [pq.read_schema(results.open(p)) for p in parts_of(results)]
    assert len(schemas) == 2
    assert schemas[0].equals(schemas[1])
    assert schemas[0].field("error_kind").type == pa.string()


def test_a_write_that_fails_leaves_nothing(results: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", fail)
    with pytest.raises(OSError, match="No space"):
        write_records(results, table(record(1)))
    assert results.names() == []


def test_a_key_that_was_written_twice_is_settled_to_one(results: Folder) -> None:
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


def test_a_broken_part_is_set_aside_and_its_rows_are_open_again(results: Folder) -> None:
    write_records(results, table(record(1)))
    (broken,) = write_records(results, table(record(2), record(3)))
    results.write(broken, results.read(broken)[:-10])
    assert done_ids(results, "ck") == BitMap64([1])
    settled = settle(results, "ck")
    assert settled.done == BitMap64([1])
    assert settled.set_aside == [broken]
    assert results.parent.exists(f"aside/{broken}")
    assert not results.exists(broken)


@settings(max_examples=60, deadline=None)
@example(groups=[{0}, {0, 15}, {15}])
@given(st.lists(st.sets(st.integers(0, 30), min_size=1), max_size=6))
def test_settling_any_overlap_keeps_every_key_exactly_once(groups: list[set[int]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        results = LocalFolder(Path(folder) / "results")
        for group in groups:
            write_records(results, table(*(record(i) for i in group)))
        everything = set().union(*groups) if groups else set()
        settled = settle(results, "ck")
        assert set(settled.done) == everything
        assert stored_ids(results) == sorted(everything)
        assert reconcile(results, "ck", BitMap64(everything)).complete


def test_tombstones_tell_the_last_error_and_give_way(results: Folder) -> None:
    run_folder, attempts = results.parent, results.parent.below("attempts")
    write_records(results, table(record(0)))
    tried = record(1, sample_id="k1", error_kind="engine.init_failed", error_message="no memory")
    write_attempts(attempts, table(tried))
    write_tombstones(run_folder, "ck", BitMap64([1, 2]), SCHEMA, sweep=3)
    ledger = reconcile(results, "ck", BitMap64(range(3)))
    assert ledger.answered == 1
    assert ledger.unanswered == {"engine.init_failed": 1, "lost": 1}
    assert (ledger.missing, ledger.complete) == (0, False)
    stored = {
        r["row_id"]: r["sample_id"] for p in parts_of(results) for r in pq.read_table(results.open(p)).to_pylist()
    }
    assert stored == {0: None, 1: "k1", 2: None}
    assert settle(results, "ck").done == BitMap64([0])
    assert lift_tombstones(results, "ck") == 2
    assert not any(is_tombstone(p) for p in parts_of(results))
    assert reconcile(results, "ck", BitMap64(range(3))).missing_ids == [1, 2]


def test_the_ledger_counts_kinds_missing_and_unexpected(results: Folder) -> None:
    write_records(
        results,
        table(
            record(0),
            record(1, error_kind="infer.empty", error_message="blank"),
            record(2, error_kind="infer.empty", error_message="blank"),
            record(3, error_kind="read.corrupt", error_message="bad", notice="shard 0 holds 9 rows, its index says 8"),
            record(9),
        ),
    )
    ledger = reconcile(results, "ck", BitMap64(range(6)))
    assert (ledger.expected, ledger.answered) == (6, 2)
    assert ledger.errors == {"infer.empty": 2, "read.corrupt": 1}
    assert (ledger.missing_ids, ledger.unexpected_ids) == ([4, 5], [9])
    assert ledger.notices == ["shard 0 holds 9 rows, its index says 8"]
    assert not ledger.complete
    assert ledger.error_rate == 0.5


@pytest.mark.parametrize(
    "fields",
    [{"answer": None}, {"answer": "yes", "error_kind": "infer.empty"}],
    ids=["neither answer nor error", "both"],
)
def test_a_record_that_says_nothing_is_no_answer_and_its_part_is_named(results: Folder, fields: dict[str, Any]) -> None:
    (good,) = write_records(results, table(record(0), record(1, error_kind="infer.empty")))
    (bad,) = write_records(results, table(record(2), {**record(3), **fields}))
    ledger = reconcile(results, "ck", BitMap64(range(4)))
    assert (ledger.answered, ledger.errors, ledger.unsound) == (2, {"infer.empty": 1}, 1)
    assert ledger.unsound_parts == [bad]
    assert (ledger.missing, ledger.complete) == (0, False)
    settled = settle(results, "ck")
    assert (settled.set_aside, settled.done) == ([bad], BitMap64([0, 1]))
    assert parts_of(results) == [good]


def test_unparsed_and_truncated_answers_are_counted(results: Folder) -> None:
    write_records(
        results,
        table(
            record(0, parse_error="names none of the labels", finish_reason="length"),
            record(1, finish_reason="length"),
            record(2, finish_reason="stop"),
        ),
    )
    ledger = reconcile(results, "ck", BitMap64(range(3)))
    assert (ledger.answered, ledger.unparsed, ledger.truncated) == (3, 1, 2)
    assert ledger.complete


def test_a_notice_alone_keeps_a_run_from_being_complete(results: Folder) -> None:
    write_records(results, table(record(0, notice="more rows than the index says")))
    ledger = reconcile(results, "ck", BitMap64([0]))
    assert ledger.answered == ledger.expected == 1
    assert not ledger.complete


def test_storage_that_fails_is_not_taken_for_a_damaged_part(bucket: Bucket) -> None:
    options = StorageOptions(endpoint=bucket.endpoint, anonymous=True, attempts=1)
    results = open_folder(bucket.url("run/results"), options)
    write_records(results, table(record(1)))
    bucket.refuse_keys = ".parquet"
    bucket.refuse["GET"] = 1.0
    for ask in (settle, done_ids):
        with pytest.raises(StorageError, match="503 Service Unavailable"):
            ask(results, "ck")
    bucket.refuse.clear()
    assert settle(results, "ck").done == BitMap64([1])
    assert bucket.keys("run/aside") == []


def test_many_parts_are_read_in_the_order_of_their_names(results: Folder) -> None:
    for first in range(0, 200, 5):
        write_records(results, table(*(record(i) for i in range(first, first + 5))))
    assert settle(results, "ck").done == BitMap64(range(200))
    assert reconcile(results, "ck", BitMap64(range(200))).complete


def test_a_part_that_holds_another_checkpoints_records_is_set_aside(results: Folder) -> None:
    (part,) = write_records(results, table(record(1), record(2)))
    stolen = part.replace("-ck-", "-other-")
    results.write(stolen, results.read(part))
    settled = settle(results, "other")
    assert (settled.done, settled.set_aside) == (BitMap64(), [stolen])
    assert settle(results, "ck").done == BitMap64([1, 2])


def test_a_part_whose_ids_are_no_numbers_is_set_aside(results: Folder) -> None:
    (part,) = write_records(results, table(record(1)))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"row_id": ["1"], "checkpoint": ["ck"]}), sink)
    results.write(part, sink.getvalue().to_pybytes())
    assert settle(results, "ck").set_aside == [part]
