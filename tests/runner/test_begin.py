"""How a run opens: what it takes for its own, what it leaves alone, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from proctor.rows import UserError
from proctor.runner.begin import begin
from proctor.runner.exam import Exam
from proctor.spec import build_spec
from tests.runner.helpers import MakeSpec, write_rows


def in_place(folder: Path, **source: Any) -> Exam:
    """An exam whose run directory is `folder`, where its data lie, too."""
    write_rows(folder / "rows.jsonl", 3)
    spec = {
        "run_dir": str(folder),
        "source": {"kind": "jsonl", "path": str(folder / "rows.jsonl"), "columns": {"prompt": "question"}, **source},
        "engine": {"kind": "scripted", "checkpoints": ["ck"]},
        "task": {"kind": "exact"},
    }
    return Exam.of(build_spec(spec))


def test_starting_anew_moves_what_a_run_left_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    exam = in_place(tmp_path)
    begin(exam, fresh=False)
    begin(exam, fresh=True)
    kept = {"thesis.txt", "rows.jsonl", "earlier", "spec.yaml", "source.json", "versions.json"}
    assert {path.name for path in tmp_path.iterdir()} >= kept
    (earlier,) = (tmp_path / "earlier").iterdir()
    assert {path.name for path in earlier.iterdir()} == {"spec.yaml", "source.json", "versions.json"}


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("name", ["spec.yaml", "events.jsonl", "results/mine.parquet"])
def test_what_only_has_the_names_of_a_run_is_left_alone(tmp_path: Path, name: str, fresh: bool) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("mine")
    with pytest.raises(UserError, match=f"{Path(name).parts[0]} there, but not of a run"):
        begin(in_place(tmp_path), fresh=fresh)
    assert file.read_text() == "mine"


def test_results_whose_spec_is_gone_are_not_taken_for_those_of_another(make_spec: MakeSpec) -> None:
    exam = Exam.of(make_spec())
    begin(exam, fresh=False)
    (exam.run.root / "results" / "part-ck-0000000000-0000000001-abc.parquet").write_bytes(b"")
    (exam.run.root / "spec.yaml").unlink()
    with pytest.raises(UserError, match=r"the results of a run whose spec\.yaml is gone \(use --fresh\)"):
        begin(exam, fresh=False)
    begin(exam, fresh=True)
    assert list((exam.run.root / "results").iterdir()) == []


def test_a_driver_that_died_while_it_opened_the_run_left_no_obstacle(make_spec: MakeSpec) -> None:
    exam = Exam.of(make_spec())
    begin(exam, fresh=False)
    (exam.run.root / "spec.yaml").unlink()
    begin(exam, fresh=False)
    assert exam.run.spec() == exam.spec


def test_a_run_that_goes_on_with_other_versions_says_so(make_spec: MakeSpec) -> None:
    exam = Exam.of(make_spec())
    begin(exam, fresh=False)
    now = exam.run.read("versions")
    (exam.run.root / "versions.json").write_text("{damaged")
    for _ in range(2):
        begin(exam, fresh=False)
        assert exam.run.read("versions") == now
    assert exam.run.events() == [], "the same versions are nothing to tell"
    exam.run.write("versions", {**now, "ray": "2.0.0", "gone": "1"})
    begin(exam, fresh=False)
    (event,) = exam.run.events()
    assert event.kind == "versions.changed"
    assert event.message == f"the run began with others: ray 2.0.0 -> {now['ray']}"
    assert exam.run.read("versions") == now


def test_nothing_to_evaluate_is_not_a_complete_run(tmp_path: Path) -> None:
    pq.write_table(pa.table({"question": pa.array([], pa.string())}), tmp_path / "rows.parquet")
    with pytest.raises(UserError, match=r"rows\.parquet: no rows: nothing to evaluate"):
        in_place(tmp_path, kind="parquet", path=str(tmp_path / "rows.parquet"))


@pytest.mark.parametrize("path", ["", "results"])
def test_a_run_does_not_write_among_its_data(tmp_path: Path, path: str) -> None:
    (tmp_path / path).mkdir(exist_ok=True)
    (tmp_path / path / "rows.jsonl").write_text(json.dumps({"question": "?"}) + "\n")
    with pytest.raises(UserError, match=r"the run directory and source\.path are one"):
        begin(in_place(tmp_path, path=str(tmp_path / path)), fresh=False)


def test_a_relative_run_directory_is_made_absolute(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers have working directories of their own."""
    monkeypatch.chdir(tmp_path)
    exam = Exam.of(make_spec(4).model_copy(update={"run_dir": "here"}))
    assert exam.run.root == tmp_path / "here"
    assert exam.run.location == exam.spec.run_dir
