"""Many checkpoints in the same engines, one after another."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from proctor.api import run
from proctor.rows import UserError
from proctor.runner.exam import Exam
from proctor.runner.outcome import RunOutcome
from proctor.spec import RunSpec, build_spec, warnings_of
from tests.runner.helpers import MakeSpec

ray_run = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("local_ray")]
FOUR = ["a", "b", "c", "d"]


def sequence(make_spec: MakeSpec, rows: int = 24, **engine: Any) -> RunSpec:
    parts: dict[str, Any] = {
        "checkpoints": FOUR, "mode": "sequential", "answer": "{checkpoint} {row_id}", "cpus_per_replica": 0.9, **engine,
    }  # fmt: skip
    return make_spec(rows, engine=parts)


def answers(outcome: RunOutcome) -> dict[tuple[str, int], str | None]:
    parts = Path(outcome.run.location, "results").glob("part-*.parquet")
    rows = [row for part in parts for row in pq.read_table(part).to_pylist()]
    found = {(row["checkpoint"], row["row_id"]): row["answer"] for row in rows}
    assert len(found) == len(rows)
    return found


def expected(rows: int = 24) -> dict[tuple[str, int], str]:
    return {(name, row): f"{name} {row}" for name in FOUR for row in range(rows)}


def kinds(outcome: RunOutcome) -> Counter[str]:
    return Counter(event.kind for event in outcome.run.events())


class TestSequence:
    pytestmark = ray_run

    def test_one_engine_answers_for_every_checkpoint(self, make_spec: MakeSpec, tmp_path: Path) -> None:
        spec = sequence(make_spec, fingerprints=str(tmp_path / "known"))
        outcome = run(spec)
        assert outcome.exit_code == 0, outcome.reasons
        assert answers(outcome) == expected()
        told = kinds(outcome)
        assert told["engine.swap_skipped"] == 3  # nothing is known of b, c and d yet
        again = run(spec.model_copy(update={"run_dir": spec.run_dir + "-again"}))
        assert answers(again) == expected()
        told = kinds(again)
        assert (told["engine.started"], told["engine.swapped"], told["engine.closed"]) == (1, 3, 1)
        assert told["sweep.started"] == 4

    def test_faults_and_a_resume_hold_for_each_checkpoint(self, make_spec: MakeSpec) -> None:
        faults = [
            {"kind": "crash", "rows": [7], "checkpoint": "b"},
            {"kind": "stall", "rows": [9], "checkpoint": "c", "times": 1},
        ]
        spec = sequence(make_spec, faults=faults, reference="beside")
        outcome = run(spec)
        ledgers = {ledger.checkpoint: ledger for ledger in outcome.reconciliation.ledgers}
        assert {name: ledger.answered for name, ledger in ledgers.items()} == {"a": 24, "b": 23, "c": 24, "d": 24}
        assert ledgers["b"].errors == {"infer.crashed": 1}
        assert answers(outcome) == expected() | {("b", 7): None}
        told = kinds(outcome)
        # After the crash the engine may not be there again when c comes: then it is started with c at once.
        assert told["engine.swapped"] + told["engine.swap_failed"] == 3
        assert told["engine.swapped"] >= 2
        for part in Path(spec.run_dir, "results").glob("part-*.parquet"):
            if {row["checkpoint"] for row in pq.read_table(part, columns=["checkpoint"]).to_pylist()} == {"c"}:
                part.unlink()
        assert answers(run(spec)) == expected() | {("b", 7): None}

    def test_a_swap_that_lies_costs_a_start_and_no_answer(self, make_spec: MakeSpec) -> None:
        spec = sequence(make_spec, swap="stale", swap_at=["b", "d"], reference="beside")
        outcome = run(spec)
        assert answers(outcome) == expected()
        told = kinds(outcome)
        assert (told["engine.swapped"], told["engine.swap_failed"]) == (1, 2)
        assert outcome.exit_code == 0

    def test_a_replica_that_refuses_is_started_anew_and_the_other_one_works_on(self, make_spec: MakeSpec) -> None:
        parts = {"checkpoints": ["a", "b"], "replicas": 2, "row_ms": 10.0, "reference": "beside"}
        outcome = run(sequence(make_spec, **parts, swap="refuse", swap_times=1))
        assert answers(outcome) == {key: text for key, text in expected().items() if key[0] in ("a", "b")}
        told = kinds(outcome)
        assert (told["engine.swap_failed"], told["engine.swapped"], outcome.exit_code) == (1, 1, 0)
        (failed,) = [event for event in outcome.run.events() if event.kind == "engine.swap_failed"]
        assert "refused: planted fault" in failed.message


def test_settings_that_do_not_go_together_are_refused_or_told(make_spec: MakeSpec) -> None:
    data = sequence(make_spec).model_dump()
    with pytest.raises(UserError, match="choose one of them"):
        build_spec({**data, "stream": {"checkpoints_at_once": 2}})
    lone = {**data, "engine": {**data["engine"], "checkpoints": ["a"]}}
    assert any("engine.mode: has no effect on one checkpoint" in line for line in warnings_of(build_spec(lone)))
    restart = {**data, "engine": {**data["engine"], "mode": "restart", "reference": "beside"}}
    assert any("engine.reference: has no effect" in line for line in warnings_of(build_spec(restart)))


@pytest.mark.parametrize("place", ["http://example.org/kept", "nowhere://kept"])
def test_fingerprints_that_can_lie_nowhere_are_refused_before_the_run(make_spec: MakeSpec, place: str) -> None:
    spec = sequence(make_spec, fingerprints=place)
    with pytest.raises(UserError) as raised:
        Exam.of(spec).check_engines()
    assert raised.value.where == "engine.fingerprints"
    assert not Path(spec.run_dir).exists()
