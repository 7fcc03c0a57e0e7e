from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from proctor.results import RunDir, lift_tombstones
from proctor.results.attempts import last_errors
from proctor.rows import Event, UserError
from proctor.spec import build_spec


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "run")
    run.create(
        build_spec(
            {
                "run_dir": str(run.root),
                "source": {"kind": "jsonl", "path": "rows.jsonl"},
                "engine": {"kind": "scripted", "checkpoints": ["ck"]},
                "task": {"kind": "exact"},
            }
        )
    )
    return run


def test_an_event_after_one_cut_short_is_not_lost_with_it(run: RunDir) -> None:
    run.append_event(Event("one"))
    run.append_event(Event("two"))
    run.events_file.write_bytes(run.events_file.read_bytes()[:-5])
    spec = run.spec()
    assert spec is not None
    run.create(spec)
    run.append_event(Event("three"))
    assert [event.kind for event in run.events()] == ["one", "three"]


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b"engine: [", b"- 1\n"])
def test_a_stored_spec_that_was_damaged_is_a_mistake_with_a_cure(run: RunDir, text: bytes) -> None:
    (run.root / "spec.yaml").write_bytes(text)
    with pytest.raises(UserError, match=r"spec\.yaml: stored spec not understood: .* \(use --fresh\)"):
        run.spec()


def test_a_document_that_was_damaged_is_named(run: RunDir) -> None:
    run.write("source", {"rows": 1})
    file = run.root / "source.json"
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(UserError, match=r"source\.json: not JSON"):
        run.read("source")
    assert run.read("metrics") is None


def test_history_that_was_damaged_is_left_out(run: RunDir) -> None:
    (run.attempts / "try-ck-001-0000000000-0000000001-abc.parquet").write_bytes(b"PAR1 half")
    assert last_errors(run.attempts, "ck") == {}
    stone = run.results / "part-ck-0000000000-0000000001-abc.tombstone.parquet"
    stone.write_bytes(b"PAR1 half")
    assert lift_tombstones(run.results, "ck") == 0
    assert not stone.exists()


def test_records_are_not_told_without_those_of_a_damaged_part(run: RunDir) -> None:
    part = run.results / "part-ck-0000000000-0000000001-abc.parquet"
    part.write_bytes(b"PAR1 half")
    with duckdb.connect() as connection, pytest.raises(UserError, match=f"{part.name}: this part of the results is"):
        run.records(connection)


@pytest.mark.parametrize("where", ["file", "file/run", "x" * 300])
def test_what_cannot_be_a_directory_is_a_mistake(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="cannot be a run directory: "), RunDir(tmp_path / where).locked():
        pass


def test_what_is_not_a_run_s_own_is_not_among_its_entries(run: RunDir) -> None:
    (run.root / "thesis.tex").write_text("mine")
    assert [path.name for path in run.own_entries()] == ["spec.yaml"]
