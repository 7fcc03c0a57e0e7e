"""What a fleet consists of: cells, and the units in which they are run."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from proctor.fleet.naming import cell_name, several
from proctor.rows import UserError
from proctor.spec import Checkpoint, RunSpec, build_spec
from proctor.spec.fleet import FleetSpec
from proctor.spec.load import set_value

CELLS = "cells"
"""Folder of a fleet directory with the units' run directories."""


@dataclass(frozen=True)
class Cell:
    """One checkpoint, one task, one choice of the other keys.

    Attributes:
        name: unlike that of any other cell of the fleet; safe as the name of a directory.
        checkpoint: name of the checkpoint.
        task: name of the task in the matrix; empty where the matrix names none.
        choice: value by dotted key.
    """

    name: str
    checkpoint: str
    task: str
    choice: dict[str, Any]


@dataclass(frozen=True)
class Unit:
    """What one job runs: one run directory, for cells that differ only in their checkpoint.

    Attributes:
        name: unlike that of any other unit; safe as the name of a directory. Never changes once the fleet has it.
        cells: in the order in which the run takes them.
        spec: of the run; its `run_dir` is ``<fleet_dir>/cells/<name>``.
        gpus: that its job takes.
        priority: higher comes first.
    """

    name: str
    cells: tuple[Cell, ...]
    spec: RunSpec
    gpus: float
    priority: int


Batches = Sequence[Sequence[Checkpoint]]
"""Checkpoints in the order in which the fleet came to know them; those that were found together are one batch."""


def expand(fleet: FleetSpec, base: Mapping[str, Any], found: Batches) -> list[Unit]:
    """The units of a fleet, in the order of the matrix. Pure: the same arguments give the same units.

    Checkpoints share a unit only with others of their batch, so that a batch more changes no unit that is there.

    Args:
        fleet: its spec.
        base: keys of the run spec, with absolute paths.
        found: its checkpoints.

    Raises:
        UserError: there are no cells, two have one name, or a run spec refuses what a cell asks; where all cells of a
            choice share the fault, the choice is named.
    """
    tasks = list(fleet.matrix.tasks) or [""]
    units = [
        _unit(fleet, base, task, choice, group)
        for batch in found
        for task in tasks
        for choice in choices(fleet)
        for group in groups(fleet, batch)
    ]
    if not units:
        raise UserError("no checkpoints, so there are no cells", where="matrix.checkpoints")
    _refuse_twins([unit.name for unit in units], "run directories")
    _refuse_twins([cell.name for unit in units for cell in unit.cells], "cells")
    return units


def choices(fleet: FleetSpec) -> Iterator[dict[str, Any]]:
    """Every combination of the matrix's choices; one empty combination if it has none."""
    keys, values = list(fleet.matrix.set), fleet.matrix.set.values()
    for combination in itertools.product(*values):
        yield dict(zip(keys, combination, strict=True))


def groups(fleet: FleetSpec, batch: Sequence[Checkpoint]) -> list[Sequence[Checkpoint]]:
    """The checkpoints of a batch that share a unit, by the fleet's way."""
    if fleet.way == "jobs":
        size = 1
    elif fleet.way == "parallel":
        size = fleet.at_once
    else:
        size = max(1, -(-len(batch) // fleet.lanes))
    return [batch[start : start + size] for start in range(0, len(batch), size)]


def run_data(
    fleet: FleetSpec, base: Mapping[str, Any], task: str, choice: Mapping[str, Any], group: Sequence[Checkpoint]
) -> dict[str, Any]:
    """The keys of the run spec for a `group` of checkpoints, without its `run_dir`.

    Raises:
        UserError: a key of the choice leads through what is no block.
    """
    data = copy.deepcopy(dict(base))
    if task:
        data["task"] = fleet.matrix.tasks[task].model_dump(mode="json", exclude_unset=True)
    for key, value in choice.items():
        set_value(data, key, copy.deepcopy(value), f"matrix.set.{key}")
    engine = data.setdefault("engine", {})
    if isinstance(engine, dict):  # what it is otherwise, the run spec refuses
        engine["checkpoints"] = [checkpoint.model_dump() for checkpoint in group]
        engine["mode"] = "sequential" if fleet.way == "sequential" and len(group) > 1 else "restart"
    stream = data.setdefault("stream", {})
    if isinstance(stream, dict):
        stream["checkpoints_at_once"] = len(group) if fleet.way == "parallel" else 1
    return data


def _unit(
    fleet: FleetSpec, base: Mapping[str, Any], task: str, choice: dict[str, Any], group: Sequence[Checkpoint]
) -> Unit:
    keys = list(fleet.matrix.set)
    name = cell_name(several([one.name for one in group]), task, choice, keys)
    cells = tuple(Cell(cell_name(one.name, task, choice, keys), one.name, task, choice) for one in group)
    data = {**run_data(fleet, base, task, choice, group), "run_dir": run_dir_of(fleet.fleet_dir, name)}
    try:
        spec = build_spec(data)
    except UserError as error:
        raise UserError(error.what, where=f"cell {cells[0].name}: {error.where}", fix=error.fix) from error
    return Unit(name, cells, spec, _gpus(fleet, spec), max(priority_of(fleet, cell.name) for cell in cells))


def _gpus(fleet: FleetSpec, spec: RunSpec) -> float:
    """GPUs of a job. With fewer than its engines ask Ray for, more jobs would start than can work."""
    taken = spec.engines_at_once * spec.engine.gpus_per_replica
    if fleet.gpus_per_unit is None:
        return taken
    if fleet.gpus_per_unit < taken:
        raise UserError(
            f"{fleet.gpus_per_unit:g}, and the engines of a job take {taken:g}",
            where="gpus_per_unit",
            fix="leave it out",
        )
    return fleet.gpus_per_unit


def run_dir_of(fleet_dir: str, unit: str) -> str:
    """The run directory of a unit."""
    return f"{fleet_dir.rstrip('/')}/{CELLS}/{unit}"


def priority_of(fleet: FleetSpec, cell: str) -> int:
    """The priority of the first pattern that fits the name of a cell; 0 if none does."""
    return next((rule.priority for rule in fleet.priority if fnmatchcase(cell, rule.match)), 0)


def _refuse_twins(names: Sequence[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:  # some file systems do not tell "A" from "a"
            raise UserError(
                f"two {what} are named {name!r}",
                where="matrix",
                fix="give checkpoints names of their own, {name: ..., path: ...}, and each value once",
            )
        seen.add(name.casefold())
