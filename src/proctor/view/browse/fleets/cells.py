"""How the cells of a fleet stand, read within bounds; what has not changed since the last look is remembered."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from proctor.fleet.addresses import address_of
from proctor.fleet.cells import CELLS, Unit
from proctor.fleet.history import Tries, tries_of
from proctor.fleet.standing import UNREADABLE, Standing, unit_standings
from proctor.results import RunDir
from proctor.rows import UserError
from proctor.rows.text import line_of, told
from proctor.storage.folder import LocalFolder
from proctor.view.browse.fleets.opening import OpenFleet
from proctor.view.browse.marks import mark_of, run_sight
from proctor.view.browse.places import check_own
from proctor.view.browse.runs import check_run

MOST_BYTES = 8 << 20
"""Largest file of a cell, other than its results, that is read."""
SECONDS = 10.0
"""Time for the cells of one page; what is read counts for the next one, so that it begins where this one ended."""
NOT_READ = "not looked at yet"
_KEPT = 4_000


@dataclass(frozen=True, slots=True)
class _Kept:
    mark: str
    rows: list[Standing]


class CellReader:
    """Reads how cells stand; safe to be used by several threads.

    Args:
        clock: seconds that never jump.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._kept: dict[str, _Kept] = {}

    def standings(self, seen: OpenFleet) -> list[Standing]:
        """How every cell stands, in the order of the fleet. A run that cannot or may not be read gives rows with the
        reason; those for which there was no time are `NOT_READ`."""
        tries, until = tries_of(seen.events, time.time()), self._clock() + SECONDS

        def look(unit: Unit) -> list[Standing]:
            mine = tries.get(unit.name, Tries())
            mine.held = unit.name in seen.held
            return self._unit(seen, unit, mine, until)

        return [row for rows in seen.place.each(look, seen.units) for row in rows]

    def _unit(self, seen: OpenFleet, unit: Unit, tries: Tries, until: float) -> list[Standing]:
        run = seen.place.run(unit.name)
        if self._clock() > until:
            kept = self._kept.get(run.location)
            return _without(run, unit, tries, NOT_READ, "") if kept is None else kept.rows
        try:
            mark = mark_of([seen.mark, _sight(seen, unit, run), _said(tries)])
        except (UserError, OSError) as error:
            return _without(run, unit, tries, UNREADABLE, str(error) if isinstance(error, UserError) else told(error))
        kept = self._kept.get(run.location)
        if kept is None or kept.mark != mark:
            kept = _Kept(mark, unit_standings(run, unit, tries))
            self._keep(run.location, kept)
        return kept.rows

    def _keep(self, key: str, kept: _Kept) -> None:
        with self._lock:
            self._kept.pop(key, None)
            while len(self._kept) >= _KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = kept


def _sight(seen: OpenFleet, unit: Unit, run: RunDir) -> str:
    """Changes with the run of a unit; empty where it has not begun.

    Raises:
        UserError: it may not be read.
        OSError: storage failed.
    """
    if isinstance(run.folder, LocalFolder):
        check_own(seen.place.folder, [f"{CELLS}/{unit.name}"], MOST_BYTES)
        _check_parts(run.folder.root / "results")
    try:
        check_run(run.folder, MOST_BYTES)
        return run_sight(run.folder).mark
    except FileNotFoundError:
        return ""


def _check_parts(results: Path) -> None:
    """Whether no part of the results is a symbolic link: how many rows it has would be counted.

    Raises:
        UserError: one is.
    """
    if results.is_symlink() or not results.is_dir():
        return  # a link is refused as a whole, with the other folders of a run
    with os.scandir(results) as entries:
        linked = next((entry.name for entry in entries if entry.is_symlink()), None)
    if linked is not None:
        raise UserError("a symbolic link, which is not followed", where=f"{results}/{linked}")


def _said(tries: Tries) -> tuple[object, ...]:
    """What of a unit's tries is shown; the time of one that goes on, by the minute."""
    return tries.attempts, tries.under_way, tries.given_up, tries.held, tries.why, int(tries.seconds // 60)


def _without(run: RunDir, unit: Unit, tries: Tries, state: str, why: str) -> list[Standing]:
    """The cells of a unit whose run directory is not read."""
    return [
        Standing(cell, unit.name, address_of(run, cell), state, attempts=tries.attempts, note=line_of(why))
        for cell in unit.cells
    ]
