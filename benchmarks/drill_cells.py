"""What a drill runs: cells of the tiny model's four checkpoints in transformers, or of the scripted engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pyarrow.parquet as pq
import yaml

from proctor.demo.dataset import write_dataset
from proctor.demo.weights import CHECKPOINTS, model_dirs
from proctor.results import RunDir

EngineKind = Literal["transformers", "scripted"]
ENGINES: tuple[EngineKind, ...] = ("transformers", "scripted")
ROWS = 4
EACH = 6
"""GPUs of a cell."""
HUNG, STUCK = "hung", "stuck"
"""The cell whose driver is stopped, and the one whose job never starts."""
_FIRST_SCENE = 90_000
_REAP_AFTER: dict[EngineKind, float] = {"transformers": 400.0, "scripted": 100.0}
"""Seconds without progress. A driver and an engine start in a few; here several do at once, on a machine that may have
many times as much to do as it can."""


def write_drill(place: Path, cells: int, address: str, engine: EngineKind) -> Path:
    """Writes the rows, the checkpoints and ``fleet.yaml`` of a drill; returns the latter.

    Args:
        place: an existing directory.
        cells: how many, at least three.
        address: of the cluster's dashboard.
        engine: what answers.
    """
    if engine == "transformers":
        write_dataset(place / "data", ROWS, first_scene=_FIRST_SCENE, corrupt={})
        model_dirs(place / "models")
    else:
        rows = [{"key": f"k{n}", "question": "?", "target": f"answer {n}"} for n in range(ROWS)]
        (place / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = place / "fleet.yaml"
    path.write_text(yaml.safe_dump(fleet_of(cells, address, engine)))
    return path


def checkpoints_of(cells: int) -> list[dict[str, str]]:
    """The cells of a drill: the four checkpoints in turn, each under as many names as it takes."""
    found = [(CHECKPOINTS[number % len(CHECKPOINTS)], number // len(CHECKPOINTS)) for number in range(cells)]
    named = {0: HUNG, 1: STUCK}
    return [
        {"name": named.get(number, f"{checkpoint}.{turn:02}"), "path": f"models/{checkpoint}"}
        for number, (checkpoint, turn) in enumerate(found)
    ]


def fleet_of(cells: int, address: str, engine: EngineKind) -> dict[str, Any]:
    """The fleet of a drill."""
    return {
        "fleet_dir": "fleet",
        "run": {
            **(_OF_THE_MODEL if engine == "transformers" else _SCRIPTED),
            "stream": {"prepare_cpus": 0.1},
            "limits": {"stall_seconds": 3600.0, "load_seconds": 1800.0},
        },
        "matrix": {"checkpoints": checkpoints_of(cells)},
        "cluster": {"address": address},
        "reap_after": _REAP_AFTER[engine],
        "pending_seconds": 70.0,
        "stop_seconds": 20.0,
        "max_attempts": 6,
    }


_GPUS = {"gpus_per_replica": EACH, "cpus_per_replica": 0.5}
_OF_THE_MODEL: dict[str, Any] = {
    "source": {"kind": "mds", "path": "data", "columns": {"images": ["frames"], "target": "target"}},
    # One row at a time: answers then depend on nothing but the row and the checkpoint.
    "engine": {"kind": "transformers", "batch_size": 1, "device": "cpu", "env": {"OMP_NUM_THREADS": "1"}, **_GPUS},
    "task": {"kind": "driving"},
    "sampling": {"max_tokens": 20},
}
_SCRIPTED: dict[str, Any] = {
    "source": {
        "kind": "jsonl",
        "path": "rows.jsonl",
        "columns": {"sample_id": "key", "prompt": "question", "target": "target"},
    },
    "engine": {"kind": "scripted", **_GPUS},
    "task": {"kind": "exact"},
}


def answers_of(run: RunDir) -> dict[int, str]:
    """The answers in a local run directory, by row."""
    found: dict[int, str] = {}
    for part in sorted((run.root / "results").glob("part-*.parquet")):
        table = pq.read_table(part, columns=["row_id", "answer"])
        found |= dict(zip(table["row_id"].to_pylist(), table["answer"].to_pylist(), strict=True))
    return found
