"""A fault leaves its traces: an event, a counter, the status of a live and of a dead run, the report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from proctor.api import run
from proctor.results import RunDir
from proctor.spec import build_spec
from tests.runner.helpers import MakeSpec, write_rows

pytestmark = [pytest.mark.ray, pytest.mark.slow]
FAULTS = [{"kind": "crash", "rows": [5]}, {"kind": "blank", "rows": [6, 7]}]


def scraped(name: str, **labels: str) -> float:
    """The sum of a counter over all processes, as Prometheus would read it from the node."""
    import ray

    (node,) = ray.nodes()
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    with urllib.request.urlopen(url, timeout=10) as reply:
        lines = reply.read().decode().splitlines()
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    found = [line for line in lines if line.startswith(f"{name}{{") and all(label in line for label in wanted)]
    return sum(float(line.rpartition(" ")[2]) for line in found)


def wait_for(name: str, value: float, **labels: str) -> float:
    """The counter once it has come to `value`: Ray's agent gathers the counters every few seconds."""
    deadline = time.monotonic() + 60
    while (seen := scraped(name, **labels)) < value:
        assert time.monotonic() < deadline, (name, labels, seen)
        time.sleep(1)
    return seen


@pytest.mark.usefixtures("local_ray")
def test_a_fault_is_an_event_a_counter_and_a_mark_in_the_report(make_spec: MakeSpec) -> None:
    spec = make_spec(40, engine={"checkpoints": ["seen"], "faults": FAULTS}, limits={"max_error_rate": 0.5})
    outcome = run(spec)
    assert outcome.exit_code == 0

    crashes = [event for event in outcome.run.events() if event.kind == "engine.crashed"]
    assert len(crashes) == 3
    for event in crashes:
        assert event.count >= len(event.rows) >= 1
        assert 5 in event.rows or event.count > len(event.rows)  # an event lists the first of the rows in flight
        assert event.host
        assert event.engine.startswith(f"{event.host}:")
        assert event.action.startswith("restart in ")
        assert event.duration is not None
        assert "SIGSEGV" in event.message
        assert event.data["signal"] == "SIGSEGV"
    assert [event.rows for event in crashes[-2:]] == [(5,), (5,)]
    (verdict,) = [event for event in outcome.run.events() if event.kind == "quarantine.verdict"]
    assert (verdict.rows, verdict.action) == ((5,), "infer.crashed")

    assert wait_for("ray_proctor_rows_total", 37, checkpoint="seen", outcome="answered") == 37
    assert wait_for("ray_proctor_rows_total", 2, checkpoint="seen", outcome="infer.empty") == 2
    assert wait_for("ray_proctor_rows_total", 1, checkpoint="seen", outcome="infer.crashed") == 1
    wait_for("ray_proctor_events_total", 3, kind="engine.crashed")  # other tests of this Ray have crashes of their own

    assert outcome.report is not None
    report = Path(outcome.report).read_text()
    assert "engine.crashed" in report
    assert "infer.empty" in report


def start(folder: Path) -> subprocess.Popen[str]:
    write_rows(folder / "rows.jsonl", 3000)
    spec = {
        "run_dir": "run",
        "source": {"kind": "jsonl", "path": "rows.jsonl", "columns": {"prompt": "question", "target": "target"}},
        "engine": {
            "kind": "scripted",
            "checkpoints": ["ck"],
            "row_ms": 5.0,
            "faults": [{"kind": "blank", "every": 10}],
        },
        "task": {"kind": "exact"},
        "stream": {"block_rows": 32},
    }
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec))
    command = [sys.executable, "-m", "proctor", "run", str(folder / "spec.yaml"), "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def status(folder: Path) -> dict[str, Any]:
    """``proctor status`` where Ray cannot even be imported."""
    blocker = folder / "no_ray" / "ray"
    blocker.mkdir(parents=True, exist_ok=True)
    (blocker / "__init__.py").write_text("raise ImportError('status needs no Ray')")
    command = [sys.executable, "-m", "proctor", "status", str(folder / "run"), "--json"]
    env = {**os.environ, "PYTHONPATH": str(blocker.parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.timeout(240)
def test_status_needs_no_ray_while_the_run_is_live_and_after_its_death(tmp_path: Path) -> None:
    process = start(tmp_path)
    deadline = time.monotonic() + 150
    while not list((tmp_path / "run" / "results").glob("part-*.parquet")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.2)
    live = status(tmp_path)
    process.kill()
    process.communicate()
    dead = status(tmp_path)
    assert (live["state"], dead["state"]) == ("running", "crashed")
    assert 0 < live["done"]["ck"] <= dead["done"]["ck"] < 3000
    assert dead["total"] == 3000
    errors = Counter(event.kind for event in RunDir(str(tmp_path / "run")).events())
    assert errors["engine.loaded"] == 1
    assert dead["errors"]["ck"] >= dead["done"]["ck"] // 10


def test_a_run_with_too_many_errors_stops_by_choice(make_spec: MakeSpec, local_ray: None) -> None:
    faults = [{"kind": "blank", "every": 2}]
    limits = {"max_error_rate": 0.1, "min_rows": 50, "on_error_rate": "stop"}
    parts = {"engine": {"row_ms": 5.0, "faults": faults}, "limits": limits, "stream": {"block_rows": 8}}
    outcome = run(make_spec(2000, **parts))
    (ledger,) = outcome.reconciliation.ledgers
    assert outcome.exit_code == 3
    assert outcome.reasons["ck"].startswith("stopped by limits.on_error_rate: ")
    assert 50 <= ledger.answered + sum(ledger.errors.values()) < 2000
    assert ledger.missing == 0
    assert ledger.expected == ledger.answered + sum(ledger.errors.values()) + ledger.unanswered["lost"]

    going_on = make_spec(2000, **{**parts, "limits": {**limits, "on_error_rate": "continue"}})
    again = run(build_spec(going_on.model_dump(mode="json", exclude_unset=True)))
    assert (again.exit_code, again.reconciliation.ledgers[0].errors) == (2, {"infer.empty": 1000})
