"""Several checkpoints over one preparation."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import ray

from proctor.api import run
from proctor.runner.outcome import RunOutcome
from proctor.spec import PythonTaskSpec, RunSpec
from tests.runner.helpers import MakeSpec

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("local_ray")]
THREE = ["a", "b", "c"]


def together(make_spec: MakeSpec, rows: int = 48, **engine: Any) -> RunSpec:
    parts: dict[str, Any] = {"checkpoints": THREE, "cpus_per_replica": 0.9, **engine}
    spec = make_spec(rows, engine=parts, stream={"checkpoints_at_once": 3, "prepare_cpus": 0.5})
    task = PythonTaskSpec(
        kind="python", python="tests.runner.counting:Counting", options={"folder": spec.run_dir + "-c"}
    )
    Path(spec.run_dir + "-c").mkdir(exist_ok=True)
    return spec.model_copy(update={"task": task})


def prepared(spec: RunSpec) -> Counter[int]:
    """How often each row was prepared."""
    files = Path(spec.run_dir + "-c").iterdir()
    return Counter(int(file.name.split("-")[0]) for file in files)


def keys(outcome: RunOutcome) -> list[tuple[str, int]]:
    parts = Path(outcome.run.location, "results").glob("part-*.parquet")
    tables = [pq.read_table(part, columns=["checkpoint", "row_id"]) for part in parts]
    return sorted((row["checkpoint"], row["row_id"]) for table in tables for row in table.to_pylist())


def kinds(outcome: RunOutcome) -> Counter[str]:
    return Counter(event.kind for event in outcome.run.events())


def test_rows_are_prepared_once_for_all_checkpoints(make_spec: MakeSpec) -> None:
    spec = together(make_spec)
    outcome = run(spec)
    assert outcome.exit_code == 0, outcome.reasons
    assert keys(outcome) == [(name, row) for name in THREE for row in range(48)]
    assert prepared(spec) == dict.fromkeys(range(48), 1)
    assert kinds(outcome)["sweep.started"] == 1
    assert kinds(outcome)["engine.started"] == kinds(outcome)["engine.closed"] == 3


def test_a_row_that_one_checkpoint_cannot_answer_costs_the_others_nothing(make_spec: MakeSpec) -> None:
    faults = [
        {"kind": "crash", "rows": [7], "checkpoint": "b"},
        {"kind": "stall", "rows": [9], "checkpoint": "c", "times": 1},
    ]
    outcome = run(together(make_spec, faults=faults))
    ledgers = {ledger.checkpoint: ledger for ledger in outcome.reconciliation.ledgers}
    assert {name: ledger.answered for name, ledger in ledgers.items()} == {"a": 48, "b": 47, "c": 48}
    assert ledgers["b"].errors == {"infer.crashed": 1}
    assert keys(outcome) == [(name, row) for name in THREE for row in range(48)]


def test_an_engine_that_dies_of_every_row_keeps_nobody_else_from_answering(make_spec: MakeSpec) -> None:
    outcome = run(together(make_spec, rows=3, faults=[{"kind": "exit", "every": 1, "checkpoint": "b"}]))
    ledgers = {ledger.checkpoint: ledger for ledger in outcome.reconciliation.ledgers}
    assert {name: ledger.answered for name, ledger in ledgers.items()} == {"a": 3, "b": 0, "c": 3}


def test_a_resume_asks_each_checkpoint_only_for_what_it_lacks(make_spec: MakeSpec) -> None:
    spec = together(make_spec)
    assert run(spec).exit_code == 0
    results = Path(spec.run_dir) / "results"
    gone = {"a": 0, "b": 0, "c": 0}
    for name, parts in (("a", 2), ("b", 1)):
        for part in sorted(results.glob(f"part-{name}-*.parquet"))[:parts]:
            gone[name] += pq.read_metadata(part).num_rows
            part.unlink()
    outcome = run(spec)
    assert outcome.exit_code == 0
    assert keys(outcome) == [(name, row) for name in THREE for row in range(48)]
    assert {name: entry.answered for name, entry in outcome.progress.checkpoints.items()} == gone


def test_an_engine_that_is_killed_with_its_actor_leaves_rows_for_the_next_sweep(make_spec: MakeSpec) -> None:
    assert ray.is_initialized()
    spec = together(make_spec)
    task = spec.task.model_copy(update={"options": {**spec.task.options, "kill": True}})  # type: ignore[union-attr]
    outcome = run(spec.model_copy(update={"task": task}))
    assert outcome.exit_code == 0, outcome.reasons
    assert keys(outcome) == [(name, row) for name in THREE for row in range(48)]
