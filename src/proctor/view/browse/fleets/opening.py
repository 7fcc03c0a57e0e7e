"""A fleet directory as it is now: what the fleet is, and what was written down about it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec
import xxhash

from proctor.fleet.cells import CELLS, Unit, groups
from proctor.fleet.folder import DOCUMENT, Fleet, FleetDir
from proctor.fleet.notes import Notes
from proctor.rows import Event, UserError
from proctor.storage.folder import Folder
from proctor.view.browse.places import check_own

MOST_BYTES = 4 << 20
"""Largest ``fleet.json`` that is read."""
MOST_EVENTS_BYTES = 16 << 20
MOST_CELLS = 2_000
_END_OF_TIME = 1e11
"""Seconds since the epoch; later events were made by nobody who was there."""
_MOST_EXPANDED = 64 << 20
"""Bytes of run specs: each cell has its own."""


@dataclass(frozen=True, slots=True)
class OpenFleet:
    """A fleet as its own files tell it.

    Attributes:
        held: units that a person does not want to run.
        watched: a watcher holds it now.
        mark: changes with ``fleet.json``.
        problem: why there are no events; empty if they were read.
    """

    place: FleetDir
    fleet: Fleet
    units: list[Unit]
    events: list[Event]
    held: frozenset[str]
    watched: bool
    mark: str
    problem: str = ""


def open_fleet(folder: Folder) -> OpenFleet:
    """The fleet in a folder.

    Raises:
        UserError: there is none; it is damaged, too large to be shown, or a file of it is a symbolic link.
        OSError: storage failed.
    """
    place, fleet, mark = _document(folder)
    events, problem = _events(place)
    return OpenFleet(place, fleet, fleet.units(), events, frozenset(_held(place)), place.watched, mark, problem)


@dataclass(frozen=True, slots=True)
class FleetCounts:
    """What a list needs of a fleet: its numbers, without its cells."""

    checkpoints: int
    cells: int
    units: int
    events: list[Event]
    held: frozenset[str]
    watched: bool
    problem: str = ""


def count_fleet(folder: Folder) -> FleetCounts:
    """The numbers of the fleet in a folder.

    Raises:
        UserError, OSError: as `open_fleet`.
    """
    place, fleet, _ = _document(folder)
    events, problem = _events(place)
    checkpoints, ways = sum(map(len, fleet.batches)), _ways(fleet)
    units = ways * sum(len(groups(fleet.spec, batch)) for batch in fleet.batches)
    held = frozenset(_held(place))
    return FleetCounts(checkpoints, ways * checkpoints, units, events, held, place.watched, problem)


def _document(folder: Folder) -> tuple[FleetDir, Fleet, str]:
    check_own(folder, [DOCUMENT, "lease.json", ".lock", "holds", CELLS], MOST_BYTES)
    place = FleetDir(folder)
    if not place.exists:
        raise UserError(f"no fleet here (no {DOCUMENT})", where=place.location)
    fleet = place.fleet()
    _check_size(fleet, place.location)
    return place, fleet, xxhash.xxh3_64_hexdigest(fleet.to_json())


def _check_size(fleet: Fleet, where: str) -> None:
    """Refuses what would take long to expand: a few lines can say millions of cells."""
    cells = _ways(fleet) * sum(map(len, fleet.batches))
    if cells > MOST_CELLS:
        raise UserError(f"too many cells to be shown: {cells:,}", where=where)
    tasks = max((len(task.model_dump_json()) for task in fleet.spec.matrix.tasks.values()), default=0)
    size = cells * (len(msgspec.json.encode(fleet.base)) + tasks)
    if size > _MOST_EXPANDED:
        raise UserError(f"the run specs of its {cells:,} cells are too large to be shown", where=where)


def _ways(fleet: Fleet) -> int:
    """How many cells each checkpoint has."""
    matrix = fleet.spec.matrix
    return max(1, len(matrix.tasks)) * math.prod(len(values) for values in matrix.set.values())


def _events(place: FleetDir) -> tuple[list[Event], str]:
    try:
        check_own(place.folder, ["events.jsonl"], MOST_EVENTS_BYTES)
        return [event for event in place.events() if 0 <= event.time < _END_OF_TIME], ""
    except UserError as error:
        return [], str(error)


def _held(place: FleetDir) -> set[str]:
    return Notes(place.folder).held()
