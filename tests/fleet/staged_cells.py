"""Fleets with run directories in every state, as the rooms themselves write them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from proctor.fleet.finding import find
from proctor.fleet.folder import FleetDir
from proctor.fleet.loading import load_fleet
from proctor.fleet.resubmit import enter
from proctor.rows import Event
from tests.fleet.making import RUN, write_fleet
from tests.paired.made import Answer, make_run

GPUS = {**RUN, "engine": {"kind": "scripted", "gpus_per_replica": 2.0}, "limits": {"max_error_rate": 0.5}}


def fleet_of(directory: Path, checkpoints: list[str], *, matrix: dict[str, Any] | None = None, **keys: Any) -> FleetDir:
    """A fleet that was submitted; `matrix` holds its tasks and choices."""
    fleet = load_fleet(write_fleet(directory, run=GPUS, matrix={"checkpoints": checkpoints, **(matrix or {})}, **keys))
    place = FleetDir(fleet.fleet_dir)
    enter(place, fleet, find(fleet).checkpoints)
    return place


def make_cells(place: FleetDir, unit: str, cells: dict[str, list[Answer]], state: str, **keys: Any) -> Path:
    """The run of a unit, with the answers of its cells."""
    run = make_run(place.run(unit).location, cells, **keys)
    entries = {name: {"total": 4, "before": 0, "done": sum(a is not None for a in c)} for name, c in cells.items()}
    run.write("status", {"state": state, "seconds": 2.0, "time": time.time(), "rate": 7.0, "checkpoints": entries})
    return run.root


def tell(place: FleetDir, unit: str, *kinds: str, start: float = 1000.0, **data: Any) -> None:
    """Events of a unit, an hour apart."""
    for number, kind in enumerate(kinds):
        event = Event(kind, time=start + 3600 * number, message=f"why {kind}", data={"unit": unit, **data})
        place.append_event(event)


YES: list[Answer] = ["yes", "no", "yes", ("infer.empty", "")]
