"""Whole runs that tell trackers, on a real (local) Ray."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from proctor.api import run
from proctor.cli.app import app
from proctor.results import RunDir
from proctor.rows import UserError
from proctor.spec import RunSpec, build_spec
from tests.runner.helpers import write_rows
from tests.trackers.helpers import got, plant_library, scalars, written
from tests.trackers.hostile import MANNERS, server

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("local_ray")]


def spec_of(tmp_path: Path, rows: int, trackers: list[dict[str, Any]], **engine: Any) -> RunSpec:
    return build_spec(
        {
            "run_dir": str(tmp_path / "run"),
            "source": {
                "kind": "jsonl",
                "path": str(write_rows(tmp_path / "rows.jsonl", rows)),
                "columns": {"sample_id": "key", "prompt": "question", "target": "target"},
            },
            "engine": {"kind": "scripted", "checkpoints": ["ck"], "cpus_per_replica": 0.9, **engine},
            "task": {"kind": "exact"},
            "limits": {"stall_seconds": 5.0, "load_seconds": 30.0, "max_error_rate": 0.5},
            "stream": {"block_rows": 8},
            "trackers": trackers,
        }
    )


def test_a_server_that_never_answers_costs_a_run_its_close_seconds_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("mlflow.version", reason="needs the extra `mlflow`")
    with server(MANNERS["never answers"]) as hostile:
        mlflow = {"kind": "mlflow", "uri": hostile.address, "close_seconds": 2.0}
        jsonl = {"kind": "jsonl", "every_seconds": 0.1}
        blank = {"kind": "blank", "every": 10, "below": 1}
        spec = spec_of(tmp_path, 60, [jsonl, mlflow], faults=[blank])
        began = time.monotonic()
        outcome = run(spec)
        took = time.monotonic() - began
    assert outcome.exit_code == 0
    assert took < 100
    progress = [entry for entry in written(tmp_path / "run", "jsonl") if entry["kind"] == "metrics"]
    assert progress[-1]["step"] == progress[-1]["values"]["rows.done"] == 60
    assert progress[-1]["values"]["ck/errors.infer.empty"] == 6
    (summary,) = [entry for entry in written(tmp_path / "run", "jsonl") if entry["kind"] == "summary"]
    values = summary["values"]
    accuracy = next(metric for metric in outcome.summaries["ck"].metrics if metric.name == "accuracy")
    assert (values["ck/accuracy"], values["ck/accuracy.low"]) == (accuracy.value, accuracy.low)
    assert (values["ck/accuracy.n"], values["ck/accuracy.of"]) == (54, 60)
    assert (values["verdict"], values["exit_code"], values["ck/ledger.answered"]) == ("complete", 0, 54)
    assert [entry["kind"] for entry in written(tmp_path / "run", "mlflow")][-1] == "summary"
    kinds = [event.kind for event in RunDir(tmp_path / "run").events()]
    assert "tracker.incomplete" in kinds
    assert "trackers.closed" in kinds


def test_a_resumed_run_continues_and_the_command_sends_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_library(tmp_path / "library")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "library"))
    monkeypatch.syspath_prepend(str(tmp_path / "library"))
    monkeypatch.setenv("BEHAVIOUR", "sleep in open")
    assert run(spec_of(tmp_path, 20, [{"kind": "tensorboard", "close_seconds": 0.5}])).exit_code == 0
    assert got(tmp_path / "run") == []
    monkeypatch.setenv("BEHAVIOUR", "")
    command = ["tracker", "sync", str(tmp_path / "run"), "--json"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    (state,) = [json.loads(line) for line in result.output.splitlines()]
    assert state["complete"]
    assert state["arrived"] == state["written"] > 2
    assert scalars(tmp_path / "run", "ck/accuracy") == [(1.0, 20)]
    told = len(got(tmp_path / "run"))
    patient = spec_of(tmp_path, 20, [{"kind": "tensorboard", "close_seconds": 100.0}])
    assert run(patient).exit_code == 0  # nothing is left to answer: how it ended is told once more, in the same run
    assert len(scalars(tmp_path / "run", "ck/accuracy")) == 2
    assert len(got(tmp_path / "run")) > told
    assert [entry["kind"] for entry in written(tmp_path / "run")].count("params") == 1


def test_a_tracker_that_cannot_be_opened_is_a_mistake_before_the_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(UserError, match="no server to send to"):
        run(spec_of(tmp_path, 5, [{"kind": "mlflow"}]))
    assert not (tmp_path / "run" / "spec.yaml").exists()
