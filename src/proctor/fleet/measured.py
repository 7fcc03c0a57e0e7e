"""What finished cells say about the next ones: rows a second of an engine, and seconds of its start."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from proctor.fleet.cells import Unit
from proctor.fleet.folder import FleetDir
from proctor.fleet.standing import DONE
from proctor.results import RunDir
from proctor.rows import UserError


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured; None where nothing was.

    Attributes:
        rate: rows a second of one engine while it was at work.
        start: seconds of an engine's start, the median.
        rows, runs: how much of it `rate` is from.
    """

    rate: float | None = None
    start: float | None = None
    rows: int = 0
    runs: int = 0


@dataclass(frozen=True, slots=True)
class _Sample:
    rows: int
    engine_seconds: float
    starts: list[float]


def measure(place: FleetDir, units: Iterable[Unit]) -> Measured:
    """Adds up the runs of `units` that are complete and have answered rows in their last try.

    Seconds of a run are those of its last try without its engines' starts; a run that cannot be read is left out.
    """
    samples = [found for unit in units if (found := _sample(place.run(unit.name), unit)) is not None]
    rows, seconds = sum(sample.rows for sample in samples), sum(sample.engine_seconds for sample in samples)
    starts = [start for sample in samples for start in sample.starts]
    rate = rows / seconds if rows and seconds else None
    return Measured(rate, median(starts) if starts else None, rows, len(samples))


def _sample(run: RunDir, unit: Unit) -> _Sample | None:
    try:
        last = run.read("status")
        if not isinstance(last, dict) or last.get("state") not in DONE:
            return None
        rows = sum(int(entry["done"]) - int(entry["before"]) for entry in last["checkpoints"].values())
        seconds = float(last["seconds"])
        began = float(last["time"]) - seconds
        loads = [event for event in run.events() if event.kind == "engine.loaded" and event.duration is not None]
    except (UserError, OSError, KeyError, TypeError, ValueError, AttributeError):
        return None
    starts = [event.duration for event in loads if event.duration is not None]
    engines = unit.spec.engines_at_once
    waited = sum(event.duration or 0.0 for event in loads if event.time >= began) / engines
    if rows <= 0 or seconds <= waited:
        return None
    return _Sample(rows, (seconds - waited) * engines, starts)
