"""The systems under test: how each is started for a cell, and where its result files appear."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.faults.rays import HEAD_CPUS

ROOT = Path(__file__).parents[2]
ROW_MS = 3.0
BATCH = 16
REPLICAS = 2
STALL_SECONDS = 4.0
NO_PROGRESS_SECONDS = 60
"""Real runs wait 120 s for a silent engine and (Ray's default) 1800 s for a silent job; a rehearsal waits less, under
every system alike."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a cell reads, writes and runs.

    Attributes:
        data: the data set.
        folder: for everything of the cell that no fault touches.
        disk: where the system writes; the faults of the output strike here.
        address: the Ray cluster, None: one of the driver's own.
        store_mb: object store of a Ray of the driver's own, None: Ray's default.
    """

    data: Path
    folder: Path
    disk: Path
    address: str | None
    store_mb: int | None = None


@dataclass(frozen=True, slots=True)
class Planted:
    """What goes wrong inside the pipeline.

    Attributes:
        faults: planted in front of the engine (see `proctor.engines.faults`).
        engine: further options of the scripted engine.
        task: options of `task.Echo`.
        read_crash: rows at which the reader's process dies.
    """

    faults: tuple[dict[str, Any], ...] = ()
    engine: tuple[tuple[str, Any], ...] = ()
    task: tuple[tuple[str, Any], ...] = ()
    read_crash: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class System:
    """One column of the matrix.

    Attributes:
        complete: exit codes that tell a person that the run is complete. After any other one it is started again.
        command: writes what the driver reads and gives its command.
        results: the result files, given the disk.
        state: where planted faults count how often they happened.
    """

    name: str
    complete: frozenset[int]
    command: Callable[[Place, Planted], list[str]]
    results: Callable[[Path], list[Path]]
    state: Callable[[Place], Path]


def proctor_command(place: Place, planted: Planted) -> list[str]:
    """``proctor run`` on a spec of the cell's own."""
    spec: dict[str, Any] = {
        "run_dir": str(place.disk / "run"),
        "source": {"kind": "mds", "path": str(place.data), "columns": {"images": ["image"]}},
        "engine": {
            "kind": "scripted",
            "checkpoints": ["model"],
            "batch_size": BATCH,
            "replicas": REPLICAS,
            "faults": list(planted.faults),
            **_engine_options(planted),
        },
        "task": {
            "kind": "python",
            "python": "benchmarks.faults.task:Echo",
            "directory": str(ROOT),
            "options": dict(planted.task),
        },
        # Exit code 2 for many errors is not what is measured here.
        "limits": {"stall_seconds": STALL_SECONDS, "load_seconds": 30.0, "init_attempts": 3, "max_error_rate": 1.0},
        "stream": {"block_rows": 64, "prepare_cpus": 1.0},  # as many workers as the naive pipeline gets
        "ray": {"cpus": HEAD_CPUS} if place.address is None else {"address": place.address},
    }
    if place.store_mb is not None:
        spec["ray"]["object_store_mb"] = place.store_mb
    file = place.folder / "spec.yaml"
    file.write_text(yaml.safe_dump(spec))
    rows = ",".join(map(str, planted.read_crash))
    program = ["benchmarks.faults.deadly_reader", rows] if rows else ["proctor"]
    return [sys.executable, "-m", *program, "run", str(file), "--json"]


def naive_command(place: Place, planted: Planted, *, checkpoint: bool) -> list[str]:
    """The pipeline of the field, with or without Ray's checkpoints."""
    config = {
        "data": str(place.data),
        "out": str(place.disk / "out"),
        "state": str(naive_state(place)),
        "address": place.address,
        "checkpoint": str(place.disk / "checkpoint") if checkpoint else None,
        "engine": _engine_options(planted),
        "faults": list(planted.faults),
        "task": dict(planted.task),
        "read_crash": list(planted.read_crash),
        "replicas": REPLICAS,
        "batch_size": BATCH,
        "stall_seconds": STALL_SECONDS,
        "no_progress_seconds": NO_PROGRESS_SECONDS,
        "store_mb": place.store_mb,
    }
    file = place.folder / "config.json"
    file.write_text(json.dumps(config))
    return [sys.executable, "-m", "benchmarks.faults.naive", str(file)]


def naive_state(place: Place) -> Path:
    """Where the naive pipeline's engines leave their process ids and planted faults their counts."""
    return place.folder / "state"


def _engine_options(planted: Planted) -> dict[str, Any]:
    return {"answer": "{prompt}", "row_ms": ROW_MS, **dict(planted.engine)}


def _naive(name: str, *, checkpoint: bool) -> System:
    return System(
        name,
        frozenset({0}),
        lambda place, planted: naive_command(place, planted, checkpoint=checkpoint),
        lambda disk: list((disk / "out").glob("*.parquet")),
        naive_state,
    )


SYSTEMS = {
    system.name: system
    for system in (
        System(
            "proctor",
            frozenset({0, 2}),
            proctor_command,
            lambda disk: list((disk / "run" / "results").glob("part-*.parquet")),
            lambda place: place.disk / "run" / "faults",
        ),
        _naive("naive", checkpoint=False),
        _naive("naive+checkpoint", checkpoint=True),
    )
}
"""The columns of the matrix."""
