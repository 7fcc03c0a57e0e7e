"""What finished cells say about the next ones: rows a second of an engine, seconds of its start and of a swap."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from proctor.fleet.cells import Unit
from proctor.fleet.folder import FleetDir
from proctor.fleet.standing import DONE
from proctor.results import RunDir
from proctor.rows import Event, UserError

_LOADED, _SWAPPED = "engine.loaded", "engine.swapped"


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured; None where nothing was.

    Attributes:
        rate: rows a second of one engine while it was at work.
        start: seconds of an engine's start, the median.
        swap: seconds in which an engine took over another checkpoint and proved it, the median.
        beside: seconds of a run without its work and the starts of engines, the median: it opens its source, joins Ray,
            starts its stream, reconciles.
        rows, runs: how much of it `rate` is from.
    """

    rate: float | None = None
    start: float | None = None
    swap: float | None = None
    beside: float | None = None
    rows: int = 0
    runs: int = 0


@dataclass(frozen=True, slots=True)
class _Sample:
    rows: int
    engine_seconds: float
    beside: float
    starts: list[float]
    swaps: list[float]


def measure(place: FleetDir, units: Iterable[Unit]) -> Measured:
    """Adds up the runs of `units` that are complete and have answered rows in their last try.

    Engines work during the sweeps of a run, from the moment at which the first one has started; a run that cannot be
    read is left out.
    """
    samples = [found for unit in units if (found := _sample(place.run(unit.name), unit)) is not None]
    rows, seconds = sum(sample.rows for sample in samples), sum(sample.engine_seconds for sample in samples)
    starts = [start for sample in samples for start in sample.starts]
    swaps = [swap for sample in samples for swap in sample.swaps]
    return Measured(
        rate=rows / seconds if seconds else None,
        start=median(starts) if starts else None,
        swap=median(swaps) if swaps else None,
        beside=median(sample.beside for sample in samples) if samples else None,
        rows=rows,
        runs=len(samples),
    )


def _sample(run: RunDir, unit: Unit) -> _Sample | None:
    try:
        last = run.read("status")
        if not isinstance(last, dict) or last.get("state") not in DONE:
            return None
        rows = sum(int(entry["done"]) - int(entry["before"]) for entry in last["checkpoints"].values())
        seconds = float(last["seconds"])
        began = float(last["time"]) - seconds
        events = [event for event in run.events() if event.time >= began]
    except (UserError, OSError, KeyError, TypeError, ValueError, AttributeError):
        return None
    at_work, waited = _at_work(events)
    at_work = at_work or seconds - waited
    if rows <= 0 or at_work <= 0:
        return None
    return _Sample(rows, at_work * unit.spec.engines_at_once, max(0.0, seconds - at_work - waited),
                   _durations(events, _LOADED), _durations(events, _SWAPPED))  # fmt: skip


def _durations(events: Iterable[Event], kind: str) -> list[float]:
    return [event.duration for event in events if event.kind == kind and event.duration is not None]


def _at_work(events: Iterable[Event]) -> tuple[float, float]:
    """Seconds of sweeps, which follow each other, from the moment at which the first engine was there; and seconds that
    sweeps waited for its start, or for it to take over the checkpoint."""
    working = waited = 0.0
    since: float | None = None
    loaded = False
    for event in events:
        if event.kind == "sweep.started":
            since, loaded = event.time, False
        elif event.kind in (_LOADED, _SWAPPED) and since is not None and not loaded:
            since, loaded = event.time, True
            waited += event.duration or 0.0
        elif event.kind == "sweep.ended" and since is not None:
            working += event.time - since
            since = None
    return working, waited
