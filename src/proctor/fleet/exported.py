"""How a fleet goes, for Prometheus."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping

from proctor.fleet import words
from proctor.fleet.notify import Told
from proctor.fleet.view import FleetView, Rows, UnitView
from proctor.rows import Event
from proctor.runner.prometheus import Series, Values

STATES = ("waiting", "held", "submitted", "running", "stopping", "complete", "given_up")
"""States of units, all of which are always exported."""


class FleetMetrics:
    """Remembers what a watcher has seen and recorded. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._view: FleetView | None = None
        self._looked = 0.0
        self._up = True
        self._events: Counter[str] = Counter()
        self._rows: dict[str, Rows] = {}
        self.told = Told()

    def event(self, event: Event) -> None:
        """Takes note of an event."""
        with self._lock:
            self._events[event.kind] += 1
            if event.kind in (words.CLUSTER_LOST, words.CLUSTER_BACK):
                self._up = event.kind == words.CLUSTER_BACK

    def view(self, view: FleetView) -> None:
        """Takes note of what there was to see."""
        with self._lock:
            self._view, self._looked = view, time.time()
            self._rows |= {unit.name: unit.rows for unit in view.units if unit.rows is not None}

    def collect(self) -> Iterator[Series]:
        """The metrics of the fleet."""
        with self._lock:
            view, looked, up, events = self._view, self._looked, self._up, dict(self._events)
            rows = dict(self._rows)  # a unit that waits for its next try has those of the last one
        kinds: Values = {(kind,): count for kind, count in events.items()}
        yield Series("proctor_fleet_events_total", "Events since the watcher began, by kind.", ["kind"], kinds)
        yield Series("proctor_fleet_cluster_up", "Whether the cluster can be reached.", [], {(): float(up)})
        sent: Values = {("arrived",): self.told.arrived, ("lost",): self.told.lost}
        text = "Events sent to the webhook since the watcher began."
        yield Series("proctor_fleet_notifications_total", text, ["outcome"], sent)
        if view is not None:
            text = "When the watcher last saw the cluster, in seconds since the epoch."
            yield Series("proctor_fleet_last_look_timestamp_seconds", text, [], {(): looked})
            yield from _seen(view)
            yield from _of_rows(rows)


def _seen(view: FleetView) -> Iterator[Series]:
    states = Counter(state_of(unit) for unit in view.units)
    units: Values = {(state,): states[state] for state in STATES}
    yield Series("proctor_fleet_units", "Units, by state.", ["state"], units)
    used = sum(unit.gpus for unit in view.units if unit.takes_room)
    yield Series("proctor_fleet_gpus_in_use", "GPUs that the fleet's jobs take.", [], {(): used})
    if view.room is not None:
        yield Series("proctor_fleet_gpus", "GPUs that the fleet may use.", [], {(): view.room.gpus})
        text = "GPUs among them that others use."
        yield Series("proctor_fleet_gpus_others", text, [], {(): view.room.others})
    silent: Values = {(unit.name,): unit.silent for unit in view.units if unit.attempt is not None}
    text = "Seconds since a unit that is under way last got on."
    yield Series("proctor_fleet_unit_silent_seconds", text, ["unit"], silent)
    failed: Values = {(unit.name,): unit.failures for unit in view.units if unit.failures}
    yield Series("proctor_fleet_unit_failures", "Tries that count against max_attempts.", ["unit"], failed)


def _of_rows(rows: Mapping[str, Rows]) -> Iterator[Series]:
    for field, text in (
        ("expected", "Rows of a unit to answer, over its checkpoints."),
        ("done", "Rows of a unit with a final record, errors among them."),
        ("errors", "Rows of a unit that ended in an error; while its run goes on, in its last try."),
    ):
        values: Values = {(unit,): getattr(found, field) for unit, found in rows.items()}
        yield Series(f"proctor_fleet_unit_rows_{field}", text, ["unit"], values)


def state_of(unit: UnitView) -> str:
    """One of `STATES`."""
    if unit.attempt is not None:
        if unit.attempt.stopping is not None:
            return "stopping"
        return "running" if unit.attempt.started or unit.live else "submitted"
    if unit.live:
        return "running"
    if unit.complete is not None:
        return "complete"
    if unit.over:
        return "given_up"
    return "held" if unit.held else "waiting"
