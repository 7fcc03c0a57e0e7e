"""``proctor compile bench`` and ``explain`` as a person types them: what is said and kept, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from proctor.cli.app import app
from proctor.compile import bench, store
from proctor.compile.bench import Advance, Options, Progress
from proctor.compile.collected import Collected
from proctor.compile.model import Measured
from proctor.compile.orders import Explained, Piece
from proctor.compile.store import read_bench
from proctor.rows import UserError
from proctor.spec import RunSpec
from tests.compile.invented import FASTER, invented

SLOWER = {"merger": (3e-3, 4e-3)}


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.yaml"
    plain = {
        "run_dir": str(tmp_path / "run"),
        "source": {"kind": "jsonl", "path": str(tmp_path / "rows.jsonl"), "columns": {"images": ["image"]}},
        "engine": {"kind": "transformers", "checkpoints": [str(tmp_path / "model")]},
        "task": {"kind": "driving"},
    }
    path.write_text(yaml.safe_dump(plain))
    return path


class Stand:
    """In the place of `measure`: tells what was invented, and is interrupted if it is to be."""

    def __init__(self, measured: Measured, *, interrupted_after: int | None = None) -> None:
        self.measured, self.interrupted_after = measured, interrupted_after
        self.options = Options()

    def __call__(
        self, spec: RunSpec, options: Options, progress: Progress, *, checkpoint: str | None, collected: Collected
    ) -> Measured:
        self.options = options
        found = self.measured
        progress(Advance(0, options.processes, "loading the model"))
        some = found.timings[: self.interrupted_after]
        collected.rows = found.rows
        collected.add(Piece(subject=found.subject, targets=found.targets, shapes=found.shapes, timings=some))
        if self.interrupted_after is not None:
            raise KeyboardInterrupt
        rest = Piece(compilations=found.compilations, agreements=found.agreements)
        collected.add(rest)
        return collected.measured()


def proctor(monkeypatch: pytest.MonkeyPatch, stand: Stand, *arguments: str | Path) -> Result:
    monkeypatch.setattr(bench, "measure", stand)
    return CliRunner().invoke(app, ["compile", "bench", *map(str, arguments)])


@pytest.mark.parametrize(("truth", "code"), [(FASTER, 0), (SLOWER, 4)])
def test_the_exit_code_says_what_to_do(
    spec: Path, monkeypatch: pytest.MonkeyPatch, truth: dict[str, tuple[float, float]], code: int
) -> None:
    done = proctor(monkeypatch, Stand(invented(truth)), spec)
    assert done.exit_code == code
    place = spec.parent / "run" / "compile"
    assert read_bench(place).timings == invented(truth).timings
    assert (place / "compile.html").read_text().startswith("<!doctype html>")
    assert str(place / "compile.json") in done.output


def test_one_process_cannot_tell(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert proctor(monkeypatch, Stand(invented(FASTER, processes=1)), spec).exit_code == 3


def test_options_are_taken_as_they_are_given(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Stand(invented(FASTER))
    more = "--targets blocks --targets merger --rounds 4 --processes 5 --sample 9 --backend eager --no-agreement"
    proctor(monkeypatch, stand, spec, *more.split(), "--warm-ups", "3", "--answers", "0", "--rows", "7000")
    assert stand.options == Options(
        targets=("blocks", "merger"),
        backend="eager",
        rounds=4,
        warmups=3,
        processes=5,
        most=10,
        rows=7000,
        sample=9,
        answers=0,
        agreement=False,
    )


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_measured(
    spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (spec.parent / "file").touch()
    stand = Stand(invented(FASTER))
    monkeypatch.setattr(bench, "measure", stand)
    with pytest.raises(UserError, match="a bench cannot be written there: Not a directory") as caught:
        CliRunner().invoke(
            app, ["compile", "bench", str(spec), "--out", str(spec.parent / "file" / "out")], catch_exceptions=False
        )
    assert caught.value.fix == "give another --out"
    assert stand.options == Options(), "it was not called"
    assert sorted(path.name for path in spec.parent.iterdir()) == ["file", "spec.yaml"]


def test_a_disk_that_fills_up_meanwhile_does_not_cost_the_verdict(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise UserError("cannot be written: No space left on device", where="compile.json")

    monkeypatch.setattr(store, "write_bench", full)
    done = proctor(monkeypatch, Stand(invented(FASTER)), spec)
    assert "Compile blocks: it saves" in done.output
    assert isinstance(done.exception, UserError)
    assert not (spec.parent / "run" / "compile").exists()


def test_machines_get_lines_of_json_alone(spec: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done = proctor(monkeypatch, Stand(invented(FASTER)), spec, "--json", "--out", tmp_path / "out")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0] == {"event": "compile_step", "process": 0, "of": 3, "doing": "loading the model"}
    assert lines[-1]["event"] == "compile_verdict"
    assert lines[-1]["best"] == ["blocks"]
    assert (tmp_path / "out" / "compile.json").is_file()


def test_an_interruption_keeps_what_was_measured(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = invented(FASTER)
    done = proctor(monkeypatch, Stand(whole, interrupted_after=200), spec)
    assert done.exit_code == 130
    kept = read_bench(spec.parent / "run" / "compile")
    assert kept.timings == whole.timings[:200]
    assert kept.notes == ("interrupted: the figures are those measured until then",)


def test_an_interruption_before_the_first_figure_writes_nothing(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = proctor(monkeypatch, Stand(invented(FASTER), interrupted_after=0), spec)
    assert done.exit_code == 130
    assert "nothing is written" in done.output
    assert not (spec.parent / "run").exists()


def test_a_bench_is_never_written_over(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proctor(monkeypatch, Stand(invented(FASTER)), spec)
    stand = Stand(invented(SLOWER))
    done = proctor(monkeypatch, stand, spec)
    assert done.exit_code == 1
    assert "there is a bench here already" in str(done.exception)
    assert read_bench(spec.parent / "run" / "compile").timings == invented(FASTER).timings


@pytest.mark.parametrize(("breaks", "code"), [((), 0), (("Data dependent operator, at model.py:7 in forward",), 4)])
def test_explaining_ends_with_whether_a_target_breaks(
    spec: Path, monkeypatch: pytest.MonkeyPatch, breaks: tuple[str, ...], code: int
) -> None:
    found = [Explained("blocks", "model.visual.blocks.0", 24, 1 + len(breaks), breaks)]
    found.append(Explained("", "model.visual", 1, 17, ("whatever the whole has is no target's",)))
    seen: list[Any] = []

    def explain(loaded: RunSpec, targets: tuple[str, ...], *_: object, **__: object) -> list[Explained]:
        seen.append(targets)
        return found

    monkeypatch.setattr(bench, "explain", explain)
    done = CliRunner().invoke(app, ["compile", "explain", str(spec), "--targets", "blocks"])
    assert done.exit_code == code
    assert seen == [("blocks",)]
    assert "model.visual.blocks.0" in done.output
    assert all(line in done.output for line in breaks)
