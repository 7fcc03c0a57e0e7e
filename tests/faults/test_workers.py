"""Rows that kill, break or hold up the workers outside of the engine: the guilty are named, the others answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from proctor.api import run
from proctor.prepare import material
from proctor.runner.outcome import RunOutcome
from proctor.sources.registry import source_of
from proctor.spec import PythonTaskSpec, RunSpec
from tests.faults.killers import DeadlySource
from tests.runner.helpers import MakeSpec

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("local_ray")]
ROWS = 120


def spec_of(make_spec: MakeSpec, task: str | None = None, **limits: Any) -> RunSpec:
    spec = make_spec(ROWS, limits={"max_error_rate": 0.5, "sweeps": 1, **limits}, stream={"block_rows": 64})
    if task is None:
        return spec
    return spec.model_copy(update={"task": PythonTaskSpec(kind="python", python=f"tests.faults.killers:{task}")})


def failures(outcome: RunOutcome) -> dict[int, tuple[str, str]]:
    """Kind and message of each row that ended in an error; every row must be there, once."""
    with duckdb.connect() as connection:
        rows = outcome.run.records(connection).select("row_id, error_kind, error_message").fetchall()
    assert sorted(row for row, _, _ in rows) == list(range(ROWS))
    return {row: (kind, message) for row, kind, message in rows if kind is not None}


def sweeps(outcome: RunOutcome) -> int:
    return sum(event.kind == "sweep.started" for event in outcome.run.events())


@pytest.mark.parametrize(
    ("task", "row", "kind", "doing"),
    [("DeadlyPrompt", 3, "prepare.crashed", "preparing"), ("DeadlyMark", 9, "score.crashed", "marking")],
)
def test_a_row_that_kills_its_worker_is_named(make_spec: MakeSpec, task: str, row: int, kind: str, doing: str) -> None:
    outcome = run(spec_of(make_spec, task))
    assert outcome.exit_code == 0
    message = f"the worker died 3 times with this row alone in it, the last time while {doing}"
    assert failures(outcome) == {row: (kind, message)}
    assert sweeps(outcome) == 3, "64, 4, 1 rows in a block"
    convicted = [event for event in outcome.run.events() if event.kind == "row.convicted"]
    assert [(event.rows, event.action) for event in convicted] == [((row,), kind)]


def with_deadly_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str) -> None:
    def make(*arguments: Any) -> DeadlySource:
        return DeadlySource(source_of(*arguments), 37, way, tmp_path / "struck")

    monkeypatch.setattr(material, "source_of", make)


def test_a_row_that_kills_its_reader_is_named(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with_deadly_source(monkeypatch, tmp_path, "always")
    outcome = run(spec_of(make_spec))
    message = "the worker died 3 times with this row alone in it, the last time while reading"
    assert failures(outcome) == {37: ("read.crashed", message)}
    assert (outcome.exit_code, sweeps(outcome)) == (0, 3)


def test_a_reader_that_dies_once_blames_nobody(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with_deadly_source(monkeypatch, tmp_path, "once")
    outcome = run(spec_of(make_spec))
    assert failures(outcome) == {}
    assert (outcome.exit_code, sweeps(outcome)) == (0, 1)
    assert (tmp_path / "struck").exists()


def test_a_reader_that_raises_costs_its_own_row_and_says_why(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with_deadly_source(monkeypatch, tmp_path, "raise")
    outcome = run(spec_of(make_spec))
    assert failures(outcome) == {37: ("read.failed", "RuntimeError: a reader's bug")}
    assert outcome.exit_code == 3, "what may pass is not final"
    monkeypatch.undo()
    assert run(spec_of(make_spec)).exit_code == 0


@pytest.mark.timeout(240)
def test_a_row_that_holds_its_worker_for_ever_is_named(make_spec: MakeSpec) -> None:
    outcome = run(spec_of(make_spec, "EndlessPrompt", row_seconds=1.0))
    assert {row: kind for row, (kind, _) in failures(outcome).items()} == {3: "prepare.crashed"}
    assert (outcome.exit_code, sweeps(outcome)) == (0, 3)
