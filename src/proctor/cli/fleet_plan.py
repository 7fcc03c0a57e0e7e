"""``proctor fleet plan``: the cells, and what each way of running them would take."""

from __future__ import annotations

from proctor.cli.fleet_watch import FleetFile
from proctor.cli.run import Json, Set


def plan(fleet: FleetFile, set_: Set = None, json: Json = False) -> None:
    """Show the cells of a fleet, without starting anything."""
