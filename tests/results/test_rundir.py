from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from proctor.results import RunDir, lift_tombstones, write_records
from proctor.results.attempts import last_errors
from proctor.results.export import export_records
from proctor.rows import Event, UserError
from proctor.rows.records import record_schema
from proctor.spec import build_spec
from proctor.storage.connect import StorageOptions
from proctor.storage.folder import Folder
from tests.storage.bucket import Bucket


@pytest.fixture
def run(run_folder: Folder) -> RunDir:
    run = RunDir(run_folder)
    run.create(
        build_spec(
            {
                "run_dir": run.location,
                "source": {"kind": "jsonl", "path": "rows.jsonl"},
                "engine": {"kind": "scripted", "checkpoints": ["ck"]},
                "task": {"kind": "exact"},
            }
        )
    )
    return run


def test_events_are_kept_in_order(run: RunDir) -> None:
    assert run.events() == []
    for kind in ("one", "two", "three"):
        run.append_event(Event(kind))
    assert [event.kind for event in RunDir(run.folder).events()] == ["one", "two", "three"]


def test_an_event_after_one_cut_short_is_not_lost_with_it(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.append_event(Event("one"))
    run.append_event(Event("two"))
    file = run.root / "events.jsonl"
    file.write_bytes(file.read_bytes()[:-5])
    run.append_event(Event("three"))
    assert [event.kind for event in run.events()] == ["one", "three"]


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b"engine: [", b"- 1\n"])
def test_a_stored_spec_that_was_damaged_is_a_mistake_with_a_cure(run: RunDir, text: bytes) -> None:
    run.folder.write("spec.yaml", text)
    with pytest.raises(UserError, match=r"spec\.yaml: stored spec not understood: .* \(use --fresh\)"):
        run.spec()


def test_a_document_that_was_damaged_is_named(run: RunDir) -> None:
    run.write("source", {"rows": 1})
    run.folder.write("source.json", run.folder.read("source.json")[:-5])
    with pytest.raises(UserError, match=r"source\.json: not JSON"):
        run.read("source")
    assert run.read("metrics") is None


def test_history_that_was_damaged_is_left_out(run: RunDir) -> None:
    run.attempts.write("try-ck-001-0000000000-0000000001-abc.parquet", b"PAR1 half")
    assert last_errors(run.attempts, "ck") == {}
    stone = "part-ck-0000000000-0000000001-abc.tombstone.parquet"
    run.results.write(stone, b"PAR1 half")
    assert lift_tombstones(run.results, "ck") == 0
    assert not run.results.exists(stone)


def test_records_are_not_told_without_those_of_a_damaged_part(run: RunDir) -> None:
    part = "part-ck-0000000000-0000000001-abc.parquet"
    run.results.write(part, b"PAR1 half")
    with duckdb.connect() as connection, pytest.raises(UserError, match=f"{part}: this part of the results is"):
        run.records(connection)


@pytest.mark.parametrize("where", ["file", "file/run", "x" * 300])
def test_what_cannot_be_a_directory_is_a_mistake(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="cannot be a run directory: "), RunDir(tmp_path / where).locked(print):
        pass


def test_what_is_not_a_run_s_own_is_not_among_its_entries(run: RunDir) -> None:
    run.folder.write("thesis.tex", b"mine")
    with run.locked(print):
        assert run.live
        assert run.own_entries() == ["spec.yaml"]
    assert not run.live
    assert run.own_entries() == ["spec.yaml"]


def test_what_a_run_left_is_moved_aside_whole(run: RunDir) -> None:
    run.folder.write("thesis.tex", b"mine")
    run.append_event(Event("one"))
    run.results.write("part-ck-0000000000-0000000001-abc.parquet", b"x")
    run.folder.write("stalls/a.log", b"y")
    run.write("status", {"state": "running"})
    names = run.own_entries()
    assert {"spec.yaml", "status.json", "results", "stalls"} < set(names)
    run.move_own_entries("earlier/1")
    assert run.own_entries() == []
    assert run.folder.read("thesis.tex") == b"mine"
    moved = RunDir(run.folder.below("earlier/1"))
    assert moved.own_entries() == names
    assert [event.kind for event in moved.events()] == ["one"]
    assert moved.results.read("part-ck-0000000000-0000000001-abc.parquet") == b"x"


@pytest.mark.parametrize("name", [".lock", "lease.json"])
def test_a_directory_in_the_place_of_the_lease_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(UserError) as caught, RunDir(tmp_path).locked(print):
        pass
    assert str(caught.value) == (
        f"{tmp_path}: cannot be a run directory: {tmp_path / name}: Is a directory (move it away)"
    )


def test_a_place_that_cannot_be_reached_is_a_mistake(bucket: Bucket) -> None:
    options = StorageOptions(endpoint=bucket.endpoint, anonymous=True, attempts=1)
    bucket.refuse = {"HEAD": 1.0, "GET": 1.0, "PUT": 1.0}
    with pytest.raises(UserError, match=r"^s3://bucket/run: cannot be read: .*503"):
        RunDir.existing(bucket.url("run"), options)
    with (
        pytest.raises(UserError, match=r"^s3://bucket/run: cannot be a run directory: cannot write .*503"),
        RunDir(bucket.url("run"), options).locked(print),
    ):
        pass


def test_records_are_exported_from_and_to_any_place(run: RunDir, tmp_path: Path) -> None:
    schema = record_schema({})
    rows = [{"row_id": n, "checkpoint": "ck", "answer": f"a{n}", "sweep": 1} for n in range(3)]
    rows = [{**row, "finished_at": datetime.now(UTC)} for row in rows]
    write_records(run.results, pa.Table.from_pylist(rows, schema=schema))
    assert export_records(run, "csv", checkpoint=None, out=None) == (3, f"{run.location}/records.csv")
    assert len(run.folder.read("records.csv").splitlines()) == 4
    out = tmp_path / "mine.parquet"
    assert export_records(run, "parquet", checkpoint="ck", out=out) == (3, str(out))
    assert pq.read_table(out)["answer"].to_pylist() == ["a0", "a1", "a2"]
    with duckdb.connect() as connection:
        assert run.records(connection, "ck").count("*").fetchall() == [(3,)]
        # A long query would draw its progress into what a command prints.
        assert connection.execute("select current_setting('enable_progress_bar')").fetchall() == [(False,)]
