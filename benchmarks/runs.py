"""Whole runs with the scripted engine, each in a process of its own, for benchmarks of the pipeline."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from proctor.api import run
from proctor.results import RunDir
from proctor.spec import RunSpec, build_spec


def tiny_rows(path: Path, rows: int) -> Path:
    """A Parquet file of `rows` rows: a number and the answer that the scripted engine gives."""
    numbers = np.arange(rows)
    targets = pa.array([f"answer {n}" for n in numbers])
    table = pa.table({"question": pa.array(numbers).cast(pa.string()), "target": targets})
    pq.write_table(table, path, row_group_size=50_000)
    return path


def scripted_spec(folder: Path, rows: int, **parts: dict[str, Any]) -> RunSpec:
    """The spec of a run over tiny rows; keyword arguments extend its parts."""
    plain: dict[str, Any] = {
        "run_dir": str(folder / "run"),
        "source": {
            "kind": "parquet",
            "path": str(tiny_rows(folder / "rows.parquet", rows)),
            "columns": {"prompt": "question", "target": "target"},
        },
        "engine": {"kind": "scripted", "checkpoints": ["ck"]},
        "task": {"kind": "exact"},
    }
    return build_spec(
        {name: {**plain[name], **parts.get(name, {})} if name in parts else plain[name] for name in plain}
        | {name: part for name, part in parts.items() if name not in plain}
    )


def measured_run(rows: int, **parts: dict[str, Any]) -> dict[str, float]:
    """Runs `rows` rows in a fresh process: seconds of its sweep and of its engine, peak memory of its driver."""
    command = [sys.executable, "-m", "benchmarks.runs", str(rows), json.dumps(parts)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the measured run failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _measure(rows: int, parts: dict[str, Any]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        spec = scripted_spec(Path(folder), rows, **parts)
        outcome = run(spec)
        if outcome.reconciliation.ledgers[0].answered != rows:
            raise RuntimeError(f"not every row was answered: {outcome.reconciliation}")
        times = {event.kind: event.time for event in outcome.run.events()}
        return {
            "sweep_seconds": times["sweep.ended"] - times["sweep.started"],
            "engine_seconds": _last_record(outcome.run) - times["engine.loaded"],
            "driver_mb": _peak_kb() / 1024,
        }


def _peak_kb() -> int:
    """Not `ru_maxrss`: a process starts with that of the one it was forked from."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def _last_record(run_dir: RunDir) -> float:
    with duckdb.connect() as connection:
        records = run_dir.records(connection)
        return float(records.aggregate("epoch(max(finished_at))").fetchall()[0][0])


if __name__ == "__main__":
    print(json.dumps(_measure(int(sys.argv[1]), json.loads(sys.argv[2]))))
