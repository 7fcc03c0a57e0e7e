"""Cells of a fleet as runs, for what puts runs beside each other."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from proctor.fleet.cells import Cell
from proctor.fleet.folder import DOCUMENT, FleetDir, storage_options
from proctor.results import RunDir
from proctor.rows import UserError
from proctor.storage.folder import open_folder

_SHOWN = 3


class Addresses(NamedTuple):
    """Cells of one task and choice.

    Attributes:
        runs: ``RUN_DIR:CHECKPOINT`` of each whose run has begun.
        missing: names of the cells whose run has not.
    """

    runs: list[str]
    missing: list[str]


def address_of(run: RunDir, cell: Cell) -> str:
    """What ``proctor compare`` and the like take for a cell: ``RUN_DIR:CHECKPOINT``, where its run directory is now (a
    fleet that has ended may have been copied elsewhere)."""
    place = run.location if "://" in run.location else Path(run.location).absolute()
    return f"{place}:{cell.checkpoint}"


def is_fleet(text: str) -> bool:
    """Whether a path or URL is that of a fleet directory."""
    try:
        return open_folder(text).exists(DOCUMENT)
    except (OSError, UserError):
        return False


def addresses(text: str, pattern: str = "*") -> Addresses:
    """The cells of the fleet at `text` whose names fit `pattern`.

    Raises:
        UserError: there is no fleet; no cell fits; or those that fit are of several tasks or choices, so that they are
            no curve.
    """
    place = FleetDir.existing(text)
    fleet = place.fleet()
    place = FleetDir(place.folder, storage_options(fleet.spec))
    units = fleet.units()
    cells = [(unit, cell) for unit in units for cell in unit.cells if fnmatchcase(cell.name, pattern)]
    if not cells:
        raise UserError(f"no cell fits {pattern!r}", where=text, fix="`proctor fleet list` names them")
    kinds = {cell.name.removeprefix(cell.checkpoint).removeprefix("--"): None for _, cell in cells}
    if len(kinds) > 1:
        shown = ", ".join(list(kinds)[:_SHOWN]) + (" ..." if len(kinds) > _SHOWN else "")
        raise UserError(
            f"cells of {len(kinds)} tasks and choices: {shown}", where=text, fix=f"--cells '*--{next(iter(kinds))}'"
        )
    begun = {unit.name: place.run(unit.name).folder.exists("spec.yaml") for unit in units}
    runs = [address_of(place.run(unit.name), cell) for unit, cell in cells if begun[unit.name]]
    return Addresses(runs, [cell.name for unit, cell in cells if not begun[unit.name]])
