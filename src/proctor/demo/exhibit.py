"""The demo's run: its data, its checkpoints, its spec, and the faults planted in it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from proctor.demo.dataset import CORRUPT_ROWS, write_dataset
from proctor.demo.scenes import CAMERA
from proctor.demo.weights import model_dirs
from proctor.spec import RunSpec, load_spec

TRANSIENT_CRASH, TRANSIENT_STALL, POISON = 301, 702, 1203
"""Rows with planted faults: an engine that crashes once, one that stalls once, and a row that always crashes it."""


def prepare_demo(out: Path, rows: int) -> tuple[RunSpec, Path]:
    """Draws the scenes, unpacks the checkpoints and writes ``demo.yaml`` into `out`; what is there already is kept.

    Args:
        out: directory of the demo.
        rows: number of scenes.

    Returns:
        The spec and the file that it was read from.
    """
    out.mkdir(parents=True, exist_ok=True)
    data = out / "scenes"
    if not _holds(data, rows):
        shutil.rmtree(data, ignore_errors=True)
        write_dataset(data, rows)
    checkpoints = model_dirs(out / "checkpoints")
    spec_file = out / "demo.yaml"
    spec_file.write_text(yaml.safe_dump(_spec(list(checkpoints), rows), sort_keys=False), encoding="utf-8")
    return load_spec(spec_file), spec_file


def planted(spec: RunSpec, rows: int) -> list[str]:
    """What is wrong with the demo on purpose, a line each."""
    spoiled = {row: how for row, how in CORRUPT_ROWS.items() if row < rows}
    lines = [f"{len(spoiled)} images that cannot be decoded (rows {', '.join(map(str, spoiled))})"]
    for fault in spec.engine.faults:
        often = "once" if fault.times == 1 else "whenever it is tried"
        lines.append(f"{fault.kind} of the engine at row {fault.rows[0]}, {often}, for {fault.checkpoint}")
    return lines


def _holds(data: Path, rows: int) -> bool:
    try:
        index = json.loads((data / "index.json").read_text(encoding="utf-8"))
        return sum(shard["samples"] for shard in index["shards"]) == rows
    except (OSError, ValueError, KeyError):
        return False


def _spec(checkpoints: list[str], rows: int) -> dict[str, Any]:
    return {
        "run_dir": "run",
        "source": {
            "kind": "mds",
            "path": "scenes",
            "columns": {"images": ["frames"], "sample_id": "scene", "target": "target"},
        },
        "engine": {
            "kind": "transformers",
            "checkpoints": [{"name": name, "path": f"checkpoints/{name}"} for name in checkpoints],
            "batch_size": 32,
            "dtype": "float32",
            "device": "cpu",
            "env": {"OMP_NUM_THREADS": "1"},
            "faults": _faults(checkpoints, rows),
        },
        "task": {"kind": "driving", "camera": CAMERA},
        "sampling": {"max_tokens": 24},
        # A few faults among few rows are a large share, so a small demo allows for more of them than the default.
        "limits": {"stall_seconds": 8.0, "max_error_rate": 0.05},
    }


def _faults(checkpoints: list[str], rows: int) -> list[dict[str, Any]]:
    """One of each kind, for different checkpoints, on rows that the data set has."""
    crash, stall, poison = (row % rows for row in (TRANSIENT_CRASH, TRANSIENT_STALL, POISON))
    return [
        {"kind": "crash", "rows": [crash], "times": 1, "checkpoint": checkpoints[0]},
        {"kind": "stall", "rows": [stall], "times": 1, "checkpoint": checkpoints[1]},
        {"kind": "crash", "rows": [poison], "checkpoint": checkpoints[-1]},
    ]
