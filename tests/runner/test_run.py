"""Whole runs with the scripted engine, on a real (local) Ray with real engine processes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

from proctor.api import run
from proctor.results import RunDir
from proctor.rows import UserError
from proctor.runner.outcome import RunOutcome
from proctor.runner.status import read_status
from proctor.sources.mds import MDSWriter
from proctor.spec import RunSpec
from tests.runner.helpers import MakeSpec

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("local_ray")]


def records(spec: RunSpec) -> list[dict[str, Any]]:
    with duckdb.connect() as connection:
        relation = RunDir(Path(spec.run_dir)).records(connection).order("checkpoint, row_id")
        return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


def kinds(spec: RunSpec) -> Counter[str | None]:
    return Counter(record["error_kind"] for record in records(spec))


def metric(outcome: RunOutcome, name: str, checkpoint: str = "ck") -> Any:
    return next(m for m in outcome.summaries[checkpoint].metrics if m.name == name)


def test_a_run_answers_every_row_once_and_writes_everything_down(make_spec: MakeSpec) -> None:
    spec = make_spec(100, engine={"checkpoints": ["a", "b"]}, metrics={}, requires={"ray": ">=2.60"})
    outcome = run(spec)
    assert outcome.exit_code == 0
    rows = records(spec)
    assert [(r["checkpoint"], r["row_id"]) for r in rows] == [(c, i) for c in "ab" for i in range(100)]
    assert all(r["answer"] == f"answer {r['row_id']}" and r["sample_id"] == f"k{r['row_id']}" for r in rows)
    assert metric(outcome, "accuracy", "a").value == 1.0
    assert metric(outcome, "accuracy", "a").n == 100
    for name in ("spec.yaml", "events.jsonl", "reconciliation.json", "metrics.json", "versions.json", "report.html"):
        assert (outcome.run.root / name).is_file(), name
    metrics = (outcome.run.root / "metrics.prom").read_text()
    assert 'proctor_rows_total{checkpoint="a",outcome="answered",run="run"} 100.0' in metrics
    assert 'proctor_run_state{run="run",state="complete"} 1.0' in metrics
    assert json.loads((outcome.run.root / "reconciliation.json").read_text())["exit_code"] == 0


def test_blank_answers_are_errors_and_not_a_plausible_score(make_spec: MakeSpec) -> None:
    blank = {"kind": "blank", "every": 100, "below": 68}
    spec = make_spec(8600, engine={"faults": [blank]}, stream={"block_rows": 512})
    outcome = run(spec)
    assert outcome.exit_code == 2
    assert outcome.reconciliation.ledgers[0].errors == {"infer.empty": 5848}
    assert outcome.reconciliation.ledgers[0].answered == 2752
    assert metric(outcome, "accuracy").n == 2752
    assert metric(outcome, "accuracy").of == 8600
    assert kinds(spec) == {"infer.empty": 5848, None: 2752}


def test_the_same_command_again_has_nothing_to_do_and_says_the_same(make_spec: MakeSpec) -> None:
    spec = make_spec()
    first = run(spec)
    written = {p: p.stat().st_mtime_ns for p in (first.run.root / "results").iterdir()}
    again = run(spec)
    assert again.exit_code == 0
    assert again.progress.checkpoints["ck"].answered == 0
    assert again.progress.checkpoints["ck"].before == 40
    assert {p: p.stat().st_mtime_ns for p in (again.run.root / "results").iterdir()} == written


def test_another_spec_in_the_same_directory_is_refused_with_the_difference(make_spec: MakeSpec) -> None:
    run(make_spec())
    with pytest.raises(UserError, match=r"sampling\.max_tokens: 64 -> 9.*--fresh"):
        run(make_spec(sampling={"max_tokens": 9}))
    with pytest.raises(UserError, match="other data"):
        run(make_spec(41))
    outcome = run(make_spec(41), fresh=True)
    assert outcome.reconciliation.ledgers[0].answered == 41
    assert len(list((outcome.run.root / "earlier").glob("*/results/part-*.parquet"))) == 5


def test_a_row_that_kills_the_engine_costs_one_record(make_spec: MakeSpec) -> None:
    spec = make_spec(60, engine={"faults": [{"kind": "crash", "rows": [17]}, {"kind": "stall", "rows": [33]}]})
    outcome = run(spec)
    assert outcome.reconciliation.complete
    assert kinds(spec) == {None: 58, "infer.crashed": 1, "infer.stalled": 1}
    assert {r["row_id"]: r["error_kind"] for r in records(spec) if r["error_kind"]} == {
        17: "infer.crashed",
        33: "infer.stalled",
    }
    events = Counter(event.kind for event in outcome.run.events())
    assert events["engine.crashed"] >= 1
    assert events["engine.stalled"] >= 1
    assert list((outcome.run.root / "stalls").iterdir())


def test_a_transient_crash_blames_nobody(make_spec: MakeSpec) -> None:
    spec = make_spec(60, engine={"faults": [{"kind": "exit", "rows": [5], "times": 1}]})
    assert run(spec).exit_code == 0
    assert kinds(spec) == {None: 60}


def test_an_engine_that_cannot_load_ends_the_run_with_the_reason_and_it_can_be_resumed(make_spec: MakeSpec) -> None:
    spec = make_spec(2000, engine={"load_failures": 1000})
    outcome = run(spec)
    assert outcome.exit_code == 3
    ledger = outcome.reconciliation.ledgers[0]
    assert ledger.missing == 0
    assert sum(ledger.unanswered.values()) == 2000
    assert outcome.reasons["ck"]
    assert read_status(outcome.run).done == {"ck": 0}
    mended = make_spec(2000, limits={"init_attempts": 2})
    assert run(mended, fresh=True).exit_code == 0


def test_relative_paths_in_python_start_at_the_working_directory(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_spec(20)
    monkeypatch.chdir(tmp_path)
    relative = spec.model_copy(
        update={"run_dir": "here", "source": spec.source.model_copy(update={"path": "rows.jsonl"})}
    )
    outcome = run(relative)
    assert outcome.exit_code == 0
    assert outcome.run.root == tmp_path / "here"


def test_two_drivers_cannot_share_a_run_directory(make_spec: MakeSpec) -> None:
    spec = make_spec()
    with RunDir(Path(spec.run_dir)).locked(print), pytest.raises(UserError, match="another driver is running here"):
        run(spec)


def test_a_users_task_that_raises_costs_the_rows_it_raised_on(make_spec: MakeSpec) -> None:
    task = {"kind": "python", "python": "tests.runner.helpers:Fussy"}
    spec = make_spec(20)
    spec = spec.model_validate({**spec.model_dump(), "task": task})
    run(spec)
    assert kinds(spec) == {None: 18, "prepare.failed": 1, "score.failed": 1}
    by_id = {r["row_id"]: r for r in records(spec)}
    assert "no such field" in by_id[3]["error_message"]
    assert "five is right out" in by_id[5]["error_message"]


def mds_spec(make_spec: MakeSpec, data: Path, rows: int) -> RunSpec:
    with MDSWriter(out=data, columns={"n": "int", "target": "str"}, hashes=["xxh64"], size_limit=1 << 10) as writer:
        for i in range(rows):
            writer.write({"n": i, "target": f"answer {i}"})
    spec = make_spec()
    source = {"kind": "mds", "path": str(data), "columns": {"target": "target", "prompt": "target"}}
    return spec.model_validate({**spec.model_dump(), "source": source})


def test_a_flipped_byte_costs_the_rows_of_its_shard_and_no_more(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = mds_spec(make_spec, tmp_path / "data", 200)
    index = json.loads((tmp_path / "data" / "index.json").read_text())
    shard = tmp_path / "data" / index["shards"][1]["raw_data"]["basename"]
    content = bytearray(shard.read_bytes())
    content[-2] ^= 1
    shard.write_bytes(content)
    outcome = run(spec)
    hit = index["shards"][1]["samples"]
    assert outcome.reconciliation.ledgers[0].errors == {"read.corrupt": hit}
    assert outcome.reconciliation.ledgers[0].answered == 200 - hit


def test_a_shard_with_more_rows_than_its_index_says_is_an_error_of_the_run(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = mds_spec(make_spec, tmp_path / "data", 200)
    index_file = tmp_path / "data" / "index.json"
    index = json.loads(index_file.read_text())
    index["shards"][0]["samples"] -= 2
    index_file.write_text(json.dumps(index))
    outcome = run(spec)
    assert outcome.exit_code == 3
    ledger = outcome.reconciliation.ledgers[0]
    assert (ledger.expected, ledger.answered) == (198, 198)
    assert any("index says" in notice for notice in ledger.notices)
