"""Makes a run directory such as a run leaves behind: scenes, records of four checkpoints, faults, accounts."""

from __future__ import annotations

import random
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
from pyroaring import BitMap64

from proctor.demo.dataset import CORRUPT_ROWS, write_dataset
from proctor.demo.scenes import CAMERA, CURVATURES, OBSTACLES, SURFACES, Scene, answer, scene, target
from proctor.results import Reconciliation, RunDir, reconcile, write_records, write_tombstones
from proctor.rows import Event, ImagePart, Message, TextPart
from proctor.rows.records import record_schema
from proctor.spec import build_spec
from proctor.tasks.marking import mark
from proctor.tasks.registry import make_task

CHECKPOINTS = {"step-0100": 0.25, "step-0400": 0.55, "step-1600": 0.86, "step-6400": 0.96}
BEGAN = 1_772_000_000.0
HOSTILE = "<script>alert(1)</script>"
_PROMPT = (
    Message("system", (TextPart("You drive a car and answer in one line."),)),
    Message("user", (ImagePart(), TextPart("Describe the road and plan the path."))),
)


def make_run(root: Path, rows: int = 200, *, lost: int = 0, hostile: bool = False) -> RunDir:
    """A finished run over `rows` scenes; the last checkpoint lacks `lost` rows."""
    write_dataset(root / "scenes", rows)
    run = RunDir(root / "night-drive")
    spec = build_spec(
        {
            "run_dir": str(run.root),
            "source": {
                "kind": "mds",
                "path": str(root / "scenes"),
                "columns": {"images": ["frames"], "sample_id": "scene", "target": "target"},
            },
            "engine": {"kind": "scripted", "checkpoints": list(CHECKPOINTS)},
            "task": {"kind": "driving", "system": "You drive a car and answer in one line.", "camera": CAMERA},
            "limits": {"max_error_rate": 0.05},
        }
    )
    run.create(spec)
    task = make_task(spec.task, spec.source.columns)
    expected = BitMap64(range(rows))
    ledgers, metrics = [], {}
    for number, (name, skill) in enumerate(CHECKPOINTS.items()):
        gone = set(range(rows - lost, rows)) if name == list(CHECKPOINTS)[-1] else set()
        records = [_record(task, name, row, skill, number, hostile) for row in range(rows) if row not in gone]
        schema = record_schema(task.columns)
        write_records(run.results, pa.Table.from_pylist(records, schema=schema))
        if gone:
            write_tombstones(run.root, name, BitMap64(gone), schema, sweep=3)
        ledgers.append(reconcile(run.results, name, expected))
        with duckdb.connect() as connection:
            metrics[name] = asdict(task.summary(run.records(connection, name), rows))
    account = Reconciliation(ledgers)
    run.write("reconciliation", {**account.to_json(), "exit_code": 0 if account.complete else 3})
    run.write("metrics", metrics)
    run.write("versions", {"python": "3.11.7", "proctor": "0.1.0", "torch": "2.13.0+cpu"})
    for event in _events(rows, hostile):
        run.append_event(event)
    return run


def _record(task: Any, checkpoint: str, row: int, skill: float, number: int, hostile: bool) -> dict[str, Any]:
    truth = target(scene(row))
    record: dict[str, Any] = {
        "row_id": row,
        "checkpoint": checkpoint,
        "sample_id": f"{HOSTILE}-{row}" if hostile else str(row),
        "finished_at": datetime.fromtimestamp(BEGAN, UTC) + timedelta(seconds=60 * number + row / 4),
        "prompt": msgspec.json.encode(_PROMPT).decode(),
        "target": msgspec.json.encode(truth).decode(),
        "sweep": 1,
    }
    if row in CORRUPT_ROWS:
        return {**record, "error_kind": "prepare.decode", "error_message": f"image 1 of 1: {CORRUPT_ROWS[row]} JPEG"}
    if row == 90 and number == 3:
        return {**record, "error_kind": "infer.crashed", "error_message": "the engine died of SIGSEGV with this row"}
    text = _answer(row, skill, random.Random(row * 10 + number))
    if hostile:
        text = f"{HOSTILE}<img src=x onerror=alert(2)>\u202e{{{{ 7 * 7 }}}} {text}"
    marked = mark(task, text, truth)
    return {**record, "answer": text, "parse_error": marked.parse_error, **marked.scores}


def _answer(row: int, skill: float, rng: random.Random) -> str:
    if rng.random() > skill + 0.45:
        return rng.choice(["I see a road.", "wet; curve left; obstacle near; waypoints", "dry; curve left"])
    truth = scene(row)
    bend = truth.curvature_tenths
    if rng.random() > skill:
        bend = max(-8, min(8, bend + rng.choice((-3, -2, 2, 3))))
    said = Scene(
        number=row,
        surface=truth.surface if rng.random() < skill + 0.3 else rng.choice(SURFACES),
        curvature_tenths=bend if rng.random() < skill + 0.2 else rng.choice(CURVATURES),
        obstacle=truth.obstacle if rng.random() < skill else rng.choice(OBSTACLES),
        frames=1,
    )
    return answer(said)


def _events(rows: int, hostile: bool) -> list[Event]:
    events = []
    for number, name in enumerate(CHECKPOINTS):
        begin, engine = BEGAN + 60 * number, f"host:{1000 + number}"
        events += [
            Event("sweep.started", begin, count=rows, message=f"{name}: sweep 1"),
            Event("engine.started", begin + 0.5, engine=engine),
            Event("engine.loaded", begin + 4.5, engine=engine, duration=4.0),
            Event("sweep.ended", begin + 48, message=f"{name}: 0 rows left"),
        ]
    events += [
        Event("engine.crashed", BEGAN + 21, "restart", (37,), 1, "host:1000", message="SIGSEGV"),
        Event("engine.restarted", BEGAN + 23, engine="host:1000"),
        Event("quarantine.started", BEGAN + 23.2, rows=tuple(range(32, 40)), count=32, engine="host:1000"),
        Event("quarantine.verdict", BEGAN + 25.6, "infer.crashed", tuple(range(32, 40)), 8, "host:1000"),
        Event("quarantine.ended", BEGAN + 26, engine="host:1000"),
        Event("engine.stalled", BEGAN + 90, "kill", (70,), 1, "host:1001", duration=8.0, message="no token for 8.0 s"),
        Event(
            "engine.crashed", BEGAN + 201, "restart", (90,), 1, "host:1003", message=HOSTILE if hostile else "SIGSEGV"
        ),
        Event("engine.crashed", BEGAN + 204, "give the row up", (90,), 1, "host:1003", message="SIGSEGV"),
    ]
    return events
