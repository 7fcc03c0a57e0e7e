"""What stands for a fleet on a command line: its directory, or the file that describes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from proctor.fleet.cells import Unit
    from proctor.fleet.folder import FleetDir
    from proctor.spec.fleet import FleetSpec


class Given(NamedTuple):
    """A fleet: its directory, spec and units. `recorded`: whether it was ever submitted."""

    place: FleetDir
    spec: FleetSpec
    units: list[Unit]
    recorded: bool


def given(text: str) -> Given:
    """The fleet at a path or URL; a file that was never submitted gives the cells it would have.

    Raises:
        UserError: there is no fleet.
    """
    from proctor.fleet.finding import find_settled
    from proctor.fleet.folder import FleetDir, storage_options
    from proctor.fleet.loading import load_fleet
    from proctor.fleet.resubmit import preview

    if "://" not in text and Path(text).is_file():
        spec = load_fleet(text)
        place = FleetDir(spec.fleet_dir, storage_options(spec))
        known = place.read()
        if known is None:
            return Given(place, spec, preview(place, spec, find_settled(spec).checkpoints).units, recorded=False)
    else:
        place = FleetDir.existing(text)
        known = place.fleet()
        place = FleetDir(place.folder, storage_options(known.spec))
    return Given(place, known.spec, known.units(), recorded=True)
