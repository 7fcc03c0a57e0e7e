"""A fleet that is submitted again: the same one, with more cells or other limits, and never another one."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from proctor.fleet.cells import Unit
from proctor.fleet.folder import DOCUMENT, Fleet, FleetDir, now, same_place
from proctor.rows import UserError
from proctor.spec import Checkpoint, differences
from proctor.spec.fleet import FleetSpec

_FIX = "use another fleet_dir"
_GROUPING = {"jobs": (), "parallel": ("at_once",), "sequential": ("lanes",)}
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Entered:
    """A fleet as it is recorded now.

    Attributes:
        fleet: the record.
        units: all of its units.
        added: names of the units that are new.
        created: whether the fleet is new.
        changed: whether the record is another than before.
    """

    fleet: Fleet
    units: list[Unit]
    added: list[str]
    created: bool
    changed: bool


def enter(place: FleetDir, spec: FleetSpec, found: Sequence[Checkpoint]) -> Entered:
    """Records a fleet in its directory, or what a submission of it adds to it: it can be called again at any time.

    Args:
        place: the directory at `spec.fleet_dir`.
        spec: resolved.
        found: the checkpoints that are known now.

    Raises:
        UserError: the directory holds another fleet or something else; a cell that is there would ask something else,
            or be gone; there are no cells; or it was recorded under another path, by which a watcher works on it.
    """
    return _recorded(place, lambda known: _first(place, spec, found) if known is None else _again(known, spec, found))


def extend(place: FleetDir, found: Sequence[Checkpoint]) -> Entered:
    """Adds checkpoints to a fleet that is recorded, whatever its spec says by now: a person may be changing it.

    Raises:
        UserError: the fleet cannot take them; or there is none.
    """

    def added(known: Fleet | None) -> Entered:
        if known is None:
            raise UserError("no fleet here any more (no fleet.json)", where=place.location)
        return _again(known, known.spec, found)

    return _recorded(place, added)


def _recorded(place: FleetDir, make: Callable[[Fleet | None], Entered]) -> Entered:
    for _ in range(_TRIES):
        known = place.read()
        entered = make(known)
        if not entered.changed:
            return entered
        if known is not None and known.id != entered.fleet.id and place.watched:
            raise UserError(
                f"a watcher is at work on it, and it was recorded in {known.spec.fleet_dir}",
                where=place.location,
                fix="submit it with that fleet_dir, or end the watcher first",
            )
        over = None if known is None else place.folder.read_versioned(DOCUMENT).version
        if place.read() == known and place.write(entered.fleet, over):
            return entered
    raise UserError("somebody else keeps changing this fleet", where=place.location, fix="submit it again")


def preview(place: FleetDir, spec: FleetSpec, found: Sequence[Checkpoint]) -> Entered:
    """What `enter` would record, without doing it.

    Raises:
        UserError: as `enter`.
    """
    known = place.read()
    return _first(place, spec, found) if known is None else _again(known, spec, found)


def _first(place: FleetDir, spec: FleetSpec, found: Sequence[Checkpoint]) -> Entered:
    try:
        other = next((name for name in ("spec.yaml", "results/") if name in place.folder.names()), None)
    except OSError as error:
        raise UserError(f"cannot be a fleet directory: {error}", where=place.location) from error
    if other is not None:
        raise UserError(f"holds a run, not a fleet ({other} is there)", where=place.location, fix=_FIX)
    batches = (tuple(found),) if found else ()
    fleet = Fleet(_new_id(), now(), spec, batches)
    units = fleet.units()
    return Entered(fleet, units, [unit.name for unit in units], created=True, changed=True)


def _new_id() -> str:
    """Of a new fleet, and of one that was moved or copied: jobs of the other place are not its own."""
    return secrets.token_hex(6)


def _again(known: Fleet, spec: FleetSpec, found: Sequence[Checkpoint]) -> Entered:
    _refuse_regrouping(known.spec, spec)
    paths = {one.name: one.path for batch in known.batches for one in batch}
    new = tuple(one for one in found if one.name not in paths)
    for one in found:
        if paths.get(one.name, one.path) != one.path:
            raise UserError(
                f"the checkpoint {one.name} was {paths[one.name]}, and is {one.path} now",
                where="matrix.checkpoints",
                fix="give the new one a name of its own",
            )
    _refuse_fewer(spec, list(paths), found)
    identity = known.id if same_place(known.spec.fleet_dir, spec.fleet_dir) else _new_id()
    fleet = replace(known, id=identity, spec=spec, batches=(*known.batches, new) if new else known.batches)
    before, units = {unit.name: unit for unit in known.units()}, fleet.units()
    _refuse_other_questions(before, units)
    added = [unit.name for unit in units if unit.name not in before]
    return Entered(fleet, units, added, created=False, changed=fleet != known)


def _refuse_regrouping(before: FleetSpec, after: FleetSpec) -> None:
    """The way decides which cells share a run directory, so that another one would leave those there behind."""
    for key in ("way", *_GROUPING[before.way]):
        old, new = getattr(before, key), getattr(after, key)
        if old != new:
            raise UserError(f"was {old!r} and is {new!r} now, which groups cells in other runs", where=key, fix=_FIX)


def _refuse_fewer(spec: FleetSpec, known: list[str], found: Sequence[Checkpoint]) -> None:
    """What is listed may only grow; what was found on a disk may be gone from there."""
    if spec.grows:
        return
    gone = [name for name in known if name not in {one.name for one in found}]
    if gone:
        raise UserError(
            f"{', '.join(gone[:3])}{' ...' if len(gone) > 3 else ''}: in the fleet, and not listed any more",
            where="matrix.checkpoints",
            fix=f"list them too, or {_FIX}",
        )


def _refuse_other_questions(before: dict[str, Unit], units: list[Unit]) -> None:
    after = {unit.name: unit for unit in units}
    for name, unit in before.items():
        if name not in after:
            raise UserError(
                f"the fleet has the cell {name}, and the matrix does not any more", where="matrix", fix=_FIX
            )
        found = differences(unit.spec, after[name].spec)
        if found:
            more = f" [and {len(found) - 1} more]" if len(found) > 1 else ""
            raise UserError(f"the cell {name} asks something else now: {found[0]}{more}", where="run", fix=_FIX)
