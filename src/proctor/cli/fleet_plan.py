"""``proctor fleet plan``: the cells, and what each way of running them would take."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proctor.cli.fleet_watch import FleetFile
from proctor.cli.output import counted, escaped, json_line, stderr, stdout, table
from proctor.cli.run import Json, Set

if TYPE_CHECKING:
    from proctor.fleet.planning import FleetPlan
    from proctor.fleet.ways import Prediction


def plan(
    fleet: FleetFile,
    set_: Set = None,
    cluster: Annotated[
        Path | None, typer.Option("--cluster", metavar="NODES", help="YAML file that describes the cluster's nodes.")
    ] = None,
    engine_rate: Annotated[
        float | None,
        typer.Option("--engine-rows-per-second", min=1e-6, help="Rows a second of one engine, measured."),
    ] = None,
    start: Annotated[
        float | None, typer.Option("--engine-start-seconds", min=0, help="Seconds of an engine's start, measured.")
    ] = None,
    swap: Annotated[
        float | None,
        typer.Option("--engine-swap-seconds", min=0, help="Seconds that a swap of checkpoints takes, measured."),
    ] = None,
    json: Json = False,
) -> None:
    """Show the cells of a fleet and what the three ways of running them take, without starting anything.

    What finished cells of the fleet say about the speed of an engine counts more than an estimate; where nothing is
    known, nothing is said.

    Exit code: 0, 3 if the way of the fleet cannot be taken, 1 a mistake in the input.
    """
    from proctor.fleet.folder import FleetDir, storage_options
    from proctor.fleet.loading import load_fleet
    from proctor.fleet.planning import plan_fleet

    spec = load_fleet(fleet, set_ or [])
    nodes = None
    if cluster is not None:
        from proctor.capacity import load_cluster

        nodes = load_cluster(cluster)
    found = plan_fleet(spec, FleetDir(spec.fleet_dir, storage_options(spec)), nodes, engine_rate, start, swap)
    if json:
        _lines(found)
    else:
        _show(found, spec.fleet_dir)
    if any(way.impossible for way in found.ways if way.way == found.chosen):
        raise typer.Exit(3)


def _lines(found: FleetPlan) -> None:
    states = {row.cell.name: row.state for row in found.standings}
    for unit in found.units:
        for cell in unit.cells:
            json_line("cell", **asdict(cell), unit=unit.name, run_dir=unit.spec.run_dir, gpus=unit.gpus,
                      priority=unit.priority, rows=found.rows[cell.name], state=states[cell.name],
                      new=unit.name in found.added)  # fmt: skip
    for way in found.ways:
        json_line("way", **asdict(way), chosen=way.way == found.chosen)
    json_line("plan", facts=asdict(found.facts), reasons=found.reasons, waiting=found.waiting,
              warnings=found.warnings)  # fmt: skip


def _show(found: FleetPlan, place: str) -> None:
    for warning in found.warnings:
        stderr.print(f"[yellow]warning:[/] {escaped(warning)}", soft_wrap=True)
    for path, reason in found.waiting.items():
        stderr.print(f"[yellow]not yet:[/] {escaped(f'{path}: {reason}')}", soft_wrap=True)
    _show_cells(found, place)
    swaps = any(way.swaps for way in found.ways)
    columns = [name for name in _COLUMNS if swaps or name != "swaps"]
    rows = [_row(way, found.chosen) for way in found.ways]
    stdout.print(table(columns, [[row[name] for name in columns] for row in rows]))
    for way in found.ways:
        stdout.say(f"{way.way}: {way.impossible or way.formula}")
    stdout.print()
    for name, (told, unit) in _FIGURES.items():
        if name != "swap" or swaps:
            figure = getattr(found.facts, name)
            scaled = None if figure.value is None else figure.value * (1000 if "ms" in unit else 1)
            value = "" if scaled is None else f"{scaled:.4g} {unit}".rstrip() + ", "
            stdout.say(f"{told}: {value}{figure.origin}")
    stdout.print()
    for reason in found.reasons:
        stdout.say(reason)


def _show_cells(found: FleetPlan, place: str) -> None:
    cells = [(cell, unit) for unit in found.units for cell in unit.cells]
    new = "" if len(found.added) in (0, len(found.units)) else f", {counted(len(found.added), 'unit')} of them new"
    count = f"{counted(len(cells), 'cell')} in {counted(len(found.units), 'unit')}"
    stdout.print(f"[bold]{count}[/]{new}: {escaped(place)}", soft_wrap=True)
    states = {row.cell.name: row.state.replace("_", " ") for row in found.standings}
    shared = any(len(unit.cells) > 1 for unit in found.units)
    rows = [
        (
            cell.name,
            *([unit.name] if shared else []),
            found.rows[cell.name],
            f"{unit.gpus:g}",
            unit.priority,
            states[cell.name],
        )
        for cell, unit in cells
    ]
    stdout.print(table(["cell", *(["unit"] if shared else []), "rows", "GPUs of its job", "priority", "state"], rows))


_FIGURES = {
    "rate": ("rate of an engine", "rows/s"),
    "start": ("start of an engine", "s"),
    "swap": ("swap of checkpoints", "s"),
    "beside": ("a run beside its work", "s"),
    "prepare": ("reading and preparing", "CPU ms a row"),
    "write": ("marking and writing", "CPU ms a record"),
    "gpus": ("GPUs", ""),
    "cores": ("CPUs", ""),
}
_COLUMNS = ["way", "jobs", "GPUs each", "at once", "rounds", "starts", "swaps", "CPU h", "hours", "GPU h", "limited by"]


def _row(way: Prediction, chosen: str) -> dict[str, object]:
    """The cells of a way, by column."""
    name = f"{way.way} (chosen)" if way.way == chosen else way.way
    if way.impossible:
        return {**dict.fromkeys(_COLUMNS, "-"), "way": name, "limited by": "not possible"}
    return {
        "way": name,
        "jobs": way.units,
        "GPUs each": f"{way.gpus:g}",
        "at once": way.at_once,
        "rounds": way.rounds,
        "starts": way.starts,
        "swaps": way.swaps,
        "CPU h": _number(way.cpu_hours),
        "hours": _number(way.hours) if way.hours is not None else "unknown",
        "GPU h": _number(way.gpu_hours),
        "limited by": way.limit or "-",
    }


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
