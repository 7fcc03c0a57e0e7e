"""What happens to Ray under a run: actors killed or frozen, workers lost, blocks dropped, nodes gone, stores full."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from proctor.api import run
from proctor.runner import watch
from proctor.runner.outcome import RunOutcome
from proctor.spec import PythonTaskSpec, RunSpec
from tests.faults.helpers import records_of
from tests.runner.helpers import MakeSpec

ray_here = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("local_ray")]
ROWS = 400


def slow_spec(make_spec: MakeSpec, **engine: Any) -> RunSpec:
    """Some 4 s of work, so that there is time for a fault."""
    return make_spec(ROWS, engine={"row_ms": 10.0, **engine}, stream={"block_rows": 32})


def with_task(spec: RunSpec, name: str) -> RunSpec:
    task = PythonTaskSpec(kind="python", python=f"tests.faults.killers:{name}", options={"run_dir": spec.run_dir})
    return spec.model_copy(update={"task": task})


@contextlib.contextmanager
def once_under_way(spec: RunSpec, strike: Callable[[int], None]) -> Iterator[None]:
    """Calls `strike` with the process id of the engine's actor as soon as the first records are there."""
    struck: list[BaseException | None] = []

    def wait() -> None:
        run_dir = Path(spec.run_dir)
        deadline = time.monotonic() + 100
        while not any((run_dir / "results").glob("part-*.parquet")):
            if time.monotonic() > deadline:
                struck.append(TimeoutError("no records"))
                return
            time.sleep(0.05)
        started = [json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines()]
        engine = next(event["engine"] for event in started if event["kind"] == "engine.started")
        strike(int(engine.rpartition(":")[2]))
        struck.append(None)

    thread = threading.Thread(target=wait)
    thread.start()
    yield
    thread.join()
    assert struck == [None]


def assert_all_answered(outcome: RunOutcome, rows: int = ROWS) -> None:
    assert outcome.exit_code == 0, outcome.reasons
    assert [record["row_id"] for record in records_of(outcome.run)] == list(range(rows))
    (ledger,) = outcome.reconciliation.ledgers
    assert (ledger.answered, ledger.errors, ledger.duplicate) == (rows, {}, 0)


class TestHere:
    pytestmark = ray_here

    def test_an_actor_that_is_killed_costs_no_row(self, make_spec: MakeSpec) -> None:
        spec = slow_spec(make_spec)
        with once_under_way(spec, lambda pid: os.kill(pid, signal.SIGKILL)):
            outcome = run(spec)
        assert_all_answered(outcome)
        engines = {event.engine for event in outcome.run.events() if event.kind == "engine.started"}
        assert len(engines) == 2, "Ray starts the actor anew, and it an engine"

    def test_an_actor_that_is_frozen_is_left_behind(self, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(watch, "SILENT_SECONDS", 6.0)
        spec = slow_spec(make_spec)
        frozen: list[int] = []

        def freeze(pid: int) -> None:
            frozen.append(pid)
            os.kill(pid, signal.SIGSTOP)

        with once_under_way(spec, freeze):
            outcome = run(spec)
        assert_all_answered(outcome)
        cut = [event.message for event in outcome.run.events() if event.kind == "sweep.cut_short"]
        assert len(cut) == 1
        assert cut[0].endswith(f":{frozen[0]}: no word for 6 s")

    def test_a_worker_that_is_killed_while_it_writes_costs_no_row(self, make_spec: MakeSpec) -> None:
        outcome = run(with_task(make_spec(40), "DiesWriting"))
        assert_all_answered(outcome, 40)
        assert (outcome.run.folder.root / "died-0").exists()

    def test_blocks_that_ray_drops_come_back_in_the_next_sweep(self, make_spec: MakeSpec) -> None:
        outcome = run(with_task(make_spec(40), "DiesThreeTimes"))
        assert_all_answered(outcome, 40)
        kinds = Counter(event.kind for event in outcome.run.events())
        assert (kinds["sweep.started"], kinds["row.convicted"]) == (2, 0)


ELSEWHERE = """
import json, logging, sys, threading, time, warnings
from pathlib import Path
warnings.simplefilter("ignore")
logging.getLogger("ray.data").setLevel(logging.CRITICAL)
import ray
from proctor.api import run
from proctor.spec import load_spec
from proctor.runner import watch
spec = load_spec(Path(sys.argv[1]))

def under_way():
    while not any((Path(spec.run_dir) / "results").glob("part-*.parquet")):
        time.sleep(0.05)

SETUP
outcome = run(spec)
(ledger,) = outcome.reconciliation.ledgers
events = [event.kind for event in outcome.run.events()]
print(json.dumps(dict(code=int(outcome.exit_code), answered=ledger.answered, errors=ledger.errors,
                      duplicate=ledger.duplicate, sweeps=events.count("sweep.started"), reasons=outcome.reasons)))
"""

NODE_REMOVED = """
from ray.cluster_utils import Cluster
watch.SILENT_SECONDS = 6.0
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
second = cluster.add_node(num_cpus=2, resources={"second": 1})
ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)

def remove():
    under_way()
    cluster.remove_node(second, allow_graceful=False)

threading.Thread(target=remove, daemon=True).start()
"""

SMALL_STORE = """
ray.init(address="local", num_cpus=4, object_store_memory=80_000_000, include_dashboard=False, log_to_driver=False,
         logging_level=logging.ERROR, _system_config=CONFIG)
"""
FULL_DISK = {"local_fs_capacity_threshold": 0.01, "local_fs_monitor_interval_ms": 100}


def elsewhere(tmp_path: Path, spec: RunSpec, setup: str) -> dict[str, Any]:
    """A run in a process of its own, with a Ray that `setup` makes."""
    file = tmp_path / "spec.yaml"
    file.write_text(yaml.safe_dump(spec.model_dump(mode="json", exclude_unset=True)))
    code = ELSEWHERE.replace("SETUP", setup)
    done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, timeout=280)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"code"')]
    assert lines, done.stderr[-3000:]  # the exit code of a process that has lost a raylet is Ray's
    return json.loads(lines[-1])


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_node_that_is_gone_costs_no_row(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = slow_spec(make_spec, replicas=2)
    found = elsewhere(tmp_path, spec, NODE_REMOVED)
    assert (found["code"], found["answered"], found["errors"], found["duplicate"]) == (0, ROWS, {}, 0), found


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("config", [{}, FULL_DISK], ids=["spills", "disk full"])
def test_a_store_that_is_too_small_costs_no_row(make_spec: MakeSpec, tmp_path: Path, config: dict[str, Any]) -> None:
    spec = with_large_rows(make_spec(4, stream={"block_rows": 16, "block_mb": 20}), tmp_path)
    found = elsewhere(tmp_path, spec, SMALL_STORE.replace("CONFIG", repr(config)))
    assert (found["code"], found["answered"], found["errors"], found["duplicate"]) == (0, 150, {}, 0), found


def with_large_rows(spec: RunSpec, tmp_path: Path) -> RunSpec:
    """150 rows of a megabyte: twice what the store holds."""
    path = tmp_path / "large.jsonl"
    with path.open("w") as file:
        for i in range(150):
            row = {"question": f"{i} " + "x" * 1_000_000, "target": f"answer {i}"}
            file.write(json.dumps(row) + "\n")
    columns = spec.source.columns.model_copy(update={"sample_id": None})
    return spec.model_copy(update={"source": spec.source.model_copy(update={"path": str(path), "columns": columns})})
