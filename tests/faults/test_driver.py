"""What happens to a run when its driver is killed or interrupted: real processes of the command line.

The first resume is one, too; the others run in this process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
import yaml
from pyroaring import BitMap64

from proctor.results import RunDir
from proctor.results.settle import done_ids
from tests.faults.helpers import run_here
from tests.runner.helpers import write_rows
from tests.supervise.helpers import wait_until

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(240), pytest.mark.usefixtures("local_ray")]
ROWS = 1500
MARK = "PROCTOR_TEST_RUN"


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    write_rows(tmp_path / "rows.jsonl", ROWS)
    spec = {
        "run_dir": "run",
        "source": {"kind": "jsonl", "path": "rows.jsonl", "columns": {"prompt": "question", "target": "target"}},
        "engine": {"kind": "scripted", "checkpoints": ["ck"], "row_ms": 4.0},
        "task": {"kind": "exact"},
        "stream": {"block_rows": 64},
    }
    file = tmp_path / "spec.yaml"
    file.write_text(yaml.safe_dump(spec))
    return file


def start(spec_file: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "proctor", "run", str(spec_file), "--json"]
    env = {**os.environ, MARK: str(spec_file)}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, preexec_fn=heed
    )


def heed() -> None:
    """A job in the background of a shell ignores SIGINT, one under nohup SIGHUP, and so would all that they start."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def wait_for_rows(run_dir: Path, rows: int) -> None:
    deadline = time.monotonic() + 120
    while len(done_ids(run_dir / "results", "ck")) < rows:
        assert time.monotonic() < deadline, "the run did not get going"
        time.sleep(0.2)


def finish(spec_file: Path) -> tuple[int, dict[str, Any]]:
    process = start(spec_file)
    out, error = process.communicate(timeout=200)
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines, error
    assert lines[-1]["event"] == "done", error
    return process.returncode, lines[-1]


def assert_complete_and_unique(run_dir: Path) -> None:
    ids = [i for p in (run_dir / "results").glob("part-*.parquet") for i in pq.read_table(p)["row_id"].to_pylist()]
    assert sorted(ids) == list(range(ROWS))


def engine_processes(spec_file: Path) -> list[psutil.Process]:
    """Processes of the engines (and their guards) that a driver of this test started, however they are related now."""
    found = []
    for process in psutil.process_iter():
        try:
            mine = process.environ().get(MARK) == str(spec_file)
            if mine and any("proctor/supervise" in word for word in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def engines_at_work(spec_file: Path) -> int:
    """Engines, without their guards."""
    count = 0
    for process in engine_processes(spec_file):
        with suppress(psutil.Error):
            count += any(word.endswith("entry.py") for word in process.cmdline())
    return count


def test_a_killed_driver_costs_only_what_was_in_flight(spec_file: Path) -> None:
    run_dir = spec_file.parent / "run"
    process = start(spec_file)
    wait_for_rows(run_dir, 400)
    assert engine_processes(spec_file)
    process.kill()
    assert_resume_was_told(process, spec_file)
    deadline = time.monotonic() + 15
    while engine_processes(spec_file) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert engine_processes(spec_file) == []
    time.sleep(1.0)
    before = done_ids(run_dir / "results", "ck")
    assert 400 <= len(before) < ROWS
    kept = {p: p.stat().st_mtime_ns for p in (run_dir / "results").iterdir() if p.suffix == ".parquet"}

    code, done = finish(spec_file)
    assert code == 0
    assert_complete_and_unique(run_dir)
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in kept.items())
    progress = done["progress"]["ck"]
    assert (progress["before"], progress["answered"]) == (len(before), ROWS - len(before))
    (ledger,) = done["reconciliation"]["checkpoints"]
    assert (ledger["answered"], ledger["repaired"]) == (ROWS, 0)


def test_a_driver_that_is_killed_while_the_next_checkpoint_is_read_ahead(spec_file: Path) -> None:
    """A second engine is being started beside the first, which answers for another checkpoint."""
    run_dir, rows = spec_file.parent / "run", 400
    write_rows(spec_file.parent / "rows.jsonl", rows)
    spec = yaml.safe_load(spec_file.read_text())
    spec["engine"] |= {"checkpoints": ["ck", "next"], "mode": "sequential", "reference": "beside", "load_seconds": 4.0,
                       "answer": "{checkpoint} {row_id}", "row_ms": 10.0}  # fmt: skip
    spec_file.write_text(yaml.safe_dump(spec))
    process = start(spec_file)
    wait_until(lambda: engines_at_work(spec_file) == 2, 120)
    process.kill()
    assert_resume_was_told(process, spec_file)
    wait_until(lambda: not engine_processes(spec_file), 60)
    assert not done_ids(run_dir / "results", "next")

    assert run_here(spec_file)[0] == 0
    tables = [pq.read_table(part).to_pylist() for part in (run_dir / "results").glob("part-*.parquet")]
    found = sorted((row["checkpoint"], row["row_id"], row["answer"]) for table in tables for row in table)
    assert found == sorted((name, row, f"{name} {row}") for name in ("ck", "next") for row in range(rows))


def assert_resume_was_told(process: subprocess.Popen[str], spec_file: Path) -> None:
    _, error = process.communicate(timeout=100)
    (line,) = error.splitlines()
    assert line.startswith("error: the driver ended without a word")
    assert line.endswith(f"go on with: proctor run {spec_file}")


def test_a_driver_under_which_ray_dies_does_not_go_in_silence(spec_file: Path) -> None:
    process = start(spec_file)
    wait_for_rows(spec_file.parent / "run", 200)
    (raylet,) = [child for child in psutil.Process(process.pid).children() if child.name() == "raylet"]
    raylet.kill()
    assert_resume_was_told(process, spec_file)
    assert process.returncode == 1, "Ray's code, not ours"
    code, _ = run_here(spec_file)
    assert code == 0
    assert_complete_and_unique(spec_file.parent / "run")


def test_interrupts_leave_a_run_that_can_be_resumed(spec_file: Path) -> None:
    run_dir = spec_file.parent / "run"
    rows = 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        process = start(spec_file)
        wait_for_rows(run_dir, rows + 100)
        process.send_signal(number)
        out, error = process.communicate(timeout=60)
        assert process.returncode == 130, (number, error)
        last = json.loads(out.splitlines()[-1])
        assert last["verdict"] == "interrupted"
        assert last["progress"]["ck"]["before"] == rows
        assert last["reconciliation"]["checkpoints"][0]["unanswered"]["lost"] > 0
        rows = len(done_ids(run_dir / "results", "ck"))
    code, _ = run_here(spec_file)
    assert code == 0
    assert_complete_and_unique(run_dir)


def test_files_that_a_power_cut_left_half_written_cost_their_own_rows(spec_file: Path) -> None:
    run_dir = spec_file.parent / "run"
    process = start(spec_file)
    wait_for_rows(run_dir, 400)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 15
    while engine_processes(spec_file) and time.monotonic() < deadline:
        time.sleep(0.2)
    last = max((run_dir / "results").glob("part-*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    rows = pq.read_table(last)["row_id"].to_pylist()
    last.write_bytes(last.read_bytes()[: last.stat().st_size // 2])
    with (run_dir / "events.jsonl").open("ab") as file:
        file.write(b'{"kind":"engine.crashed","time":17')
    before = done_ids(run_dir / "results", "ck")
    assert before.isdisjoint(BitMap64(rows))

    code, done = run_here(spec_file)
    assert code == 0
    assert_complete_and_unique(run_dir)
    assert [path.name for path in (run_dir / "aside").iterdir()] == [last.name]
    assert done["progress"]["ck"]["before"] == len(before)
    events = RunDir(str(run_dir)).events()
    assert [event.rows for event in events if event.kind == "part.set_aside"] == [()]
    assert last.name in next(event.message for event in events if event.kind == "part.set_aside")
    assert sum(event.kind == "sweep.started" for event in events) == 2, "no event was lost with the line that was cut"
