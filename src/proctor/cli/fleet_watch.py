"""``proctor fleet submit``, ``watch``, ``reap`` and ``stop``, and what a fleet's jobs run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from proctor.cli.output import counted, escaped, json_line, stderr, stdout
from proctor.cli.run import Json, Set
from proctor.rows import Event, UserError
from proctor.runner.interrupts import interruptible

if TYPE_CHECKING:
    from proctor.fleet.folder import FleetDir
    from proctor.fleet.loop import Ears, Watcher
    from proctor.fleet.view import FleetView

FleetFile = Annotated[Path, typer.Argument(metavar="FLEET", help="YAML file that describes the fleet.")]
FleetPlace = Annotated[str, typer.Argument(metavar="FLEET", help="Fleet directory (path or URL), or its YAML file.")]
_INTERRUPTED = 130


def submit(
    fleet: FleetFile,
    set_: Set = None,
    detach: Annotated[bool, typer.Option("--detach", help="Only record the fleet; `fleet watch` runs it.")] = False,
    json: Json = False,
) -> None:
    """Record a fleet, or what is new in it, and watch it until every cell has its last word.

    Submitting again is always safe: complete cells are left alone, incomplete ones go on where they stopped, and those
    that were given up or stopped are tried again.

    Exit code: 0 all cells complete, 2 one of them with too many errors, 3 not all complete, 1 a mistake in the input,
    130 interrupted (jobs that run go on).
    """
    with interruptible():
        from proctor.fleet.book import GIVEN_UP, Book
        from proctor.fleet.finding import find_settled
        from proctor.fleet.folder import FleetDir, storage_options
        from proctor.fleet.loading import load_fleet
        from proctor.fleet.notes import Notes
        from proctor.fleet.resubmit import enter

        spec = load_fleet(fleet, set_ or [])
        place = FleetDir(spec.fleet_dir, storage_options(spec))
        found = find_settled(spec)
        for path, reason in found.waiting.items():
            stderr.print(f"[yellow]not yet:[/] {escaped(f'{path}: {reason}')}", soft_wrap=True)
        entered = enter(place, spec, found.checkpoints)
        notes, book = Notes(place.folder), Book()
        book.read(place.events())
        for name in notes.held():
            notes.release(name)
        again = [unit.name for unit in entered.units if book.unit(unit.name).over == GIVEN_UP]
        for name in again:
            notes.try_again(name)
        said = {"units": len(entered.units), "added": len(entered.added), "again": len(again)}
        if json:
            json_line("submitted", fleet=place.location, created=entered.created, **said)
        else:
            known = "" if entered.created else f", {len(entered.added):,} of them new"
            more = f", {len(again):,} to be tried again" if again else ""
            stdout.say(f"{place.location}: {counted(len(entered.units), 'unit')}{known}{more}")
        if detach:
            return
        if place.watched:
            stdout.say("a watcher is at work there, and takes over what is new")
            return
        raise typer.Exit(_watched(place, json=json))


def watch(fleet: FleetPlace, json: Json = False) -> None:
    """Admit, watch and reap the jobs of a fleet until every cell has its last word.

    Takes over what runs already. Interrupted, it leaves the jobs running. Exit code: as ``fleet submit``.
    """
    with interruptible():
        raise typer.Exit(_watched(_place(fleet), json=json))


def reap(
    fleet: FleetPlace,
    once: Annotated[
        bool, typer.Option("--once", help="Look once, and follow what has to be stopped to its end.")
    ] = False,
    admit: Annotated[bool, typer.Option("--admit", help="Submit what fits, too, as a watcher would.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    json: Json = False,
) -> None:
    """Stop jobs that do not get on, and queue their cells again; with --once for cron.

    Exit code: 0, or 1 for a mistake in the input, a cluster out of reach, or a watcher that is at work already.
    """
    with interruptible():
        place = _place(fleet)
        if dry_run:
            from proctor.fleet.loop import described

            actions = _watcher(place, _ears(json), admits=admit).foresee()
            for action in actions:
                if json:
                    json_line("would", action=type(action).__name__, **asdict(action))
                else:
                    stdout.say(f"would {described(action)}")
            if not (actions or json):
                stdout.say("nothing would be done")
            return
        with _at_work(place, json=json, admits=admit) as watcher:
            if once:
                watcher.round()
            else:
                watcher.watch()


def stop(
    fleet: FleetPlace,
    cells: Annotated[list[str] | None, typer.Argument(metavar="[CELL]...", help="Default: all of the fleet.")] = None,
    wait: Annotated[float, typer.Option("--wait", min=0, help="Most seconds until they have stopped.")] = 300.0,
    json: Json = False,
) -> None:
    """Stop cells in good order: what has a record is kept, and ``fleet submit`` goes on from there.

    A cell that shares a job with others stops with them. That they are not to run is written down first, and stays so
    whatever happens then.

    Exit code: 0, 3 if some have not stopped in time (the cluster is away, or a driver cannot be ended), 1 a mistake in
    the input.
    """
    with interruptible():
        from proctor.fleet.notes import Notes

        place = _place(fleet)
        units = _units_of(place, cells or [])
        notes = Notes(place.folder)
        for name in units:
            notes.hold(name)
        if place.watched:
            stdout.say("the watcher that is at work there stops them")
            return
        with _at_work(place, json=json, admits=False) as watcher:
            stopped = watcher.until(lambda view: not _ending(view), wait)
            left = watcher.at_work(units)
        if left or not stopped:
            names = ", ".join(left or units)
            stderr.say(f"not stopped: {names}; they stay held back, and the next watcher goes on with that")
            raise typer.Exit(3)
        stdout.say(f"stopped: {', '.join(units)}")


def unit(
    fleet: Annotated[str, typer.Argument(metavar="FLEET_DIR")],
    name: Annotated[str, typer.Argument(metavar="UNIT")],
    attempt: Annotated[int, typer.Option("--attempt", min=1)],
    storage: Annotated[str, typer.Option("--storage", help="How object storage is reached, as JSON.")] = "{}",
) -> None:
    """Run one unit on the cluster that this process is a job of. Exit code: as ``proctor run``."""
    with interruptible():
        from proctor.api import run
        from proctor.cli.outcome import show_outcome
        from proctor.fleet.folder import FleetDir
        from proctor.fleet.unit import run_unit
        from proctor.storage.connect import StorageOptions

        options = msgspec.json.decode(storage, type=StorageOptions)
        outcome = run_unit(FleetDir.existing(fleet, options), name, attempt, run)
        if outcome is None:
            stdout.say("asked to stop before it began")
            raise typer.Exit(_INTERRUPTED)
        show_outcome(outcome, resume=f"proctor fleet submit (fleet directory {fleet})", json=False)
        raise typer.Exit(int(outcome.exit_code))


def _place(fleet: str) -> FleetDir:
    """The fleet directory that is named, or whose YAML file is."""
    from proctor.fleet.folder import FleetDir, storage_options
    from proctor.fleet.loading import load_fleet

    if Path(fleet).is_file():
        spec = load_fleet(fleet)
        return FleetDir.existing(spec.fleet_dir, storage_options(spec))
    return FleetDir.existing(fleet)


def _units_of(place: FleetDir, cells: list[str]) -> list[str]:
    """The units that hold these cells; all if there are none.

    Raises:
        UserError: the fleet has no such cell.
    """
    units = place.fleet().units()
    known = {name: unit.name for unit in units for name in (unit.name, *(cell.name for cell in unit.cells))}
    for cell in cells:
        if cell not in known:
            raise UserError(f"no cell {cell!r} in this fleet", where=place.location, fix="see `proctor fleet list`")
    return sorted({known[cell] for cell in cells}) if cells else [unit.name for unit in units]


def _ending(view: FleetView) -> bool:
    """Whether something of what is held has yet to end, and may do so without a person."""
    return any(unit.held and unit.attempt is not None and not unit.attempt.stuck for unit in view.units)


def _watched(place: FleetDir, *, json: bool) -> int:
    try:
        with _at_work(place, json=json) as watcher:
            return int(watcher.watch())
    except KeyboardInterrupt:
        stdout.say(f"interrupted: jobs that run go on; `proctor fleet watch {place.location}` takes them up again")
        return _INTERRUPTED


@contextmanager
def _at_work(place: FleetDir, *, json: bool, admits: bool = True) -> Iterator[Watcher]:
    """A watcher that holds the fleet during the block, and tells whom the fleet's spec names."""
    from proctor.fleet.examined import check_ray
    from proctor.fleet.telling import telling

    spec = place.fleet().spec
    if admits:
        check_ray(spec)
    with telling(spec, _ears(json)) as ears:
        watcher = _watcher(place, ears, admits=admits)
        with watcher.watching():
            yield watcher


def _watcher(place: FleetDir, ears: Ears, *, admits: bool) -> Watcher:
    from proctor.fleet.jobs import RayJobs
    from proctor.fleet.loop import Watcher

    return Watcher(place, RayJobs(place.fleet().spec.cluster.address), ears, admits=admits)


def _ears(json: bool) -> Ears:
    from proctor.fleet.loop import Ears

    said = _Said(json=json)
    return Ears(said.event, said.view, said.trouble).unfailing()


class _Said:
    """What a watcher says: a line an event, and a line of figures whenever they change."""

    def __init__(self, *, json: bool) -> None:
        self._json, self._figures = json, ""

    def event(self, event: Event) -> None:
        """Shows an event."""
        if self._json:
            json_line(event.kind, time=event.time, message=event.message, **event.data)
            return
        name, attempt = event.data.get("unit", ""), event.data.get("attempt")
        clock = datetime.fromtimestamp(event.time, UTC).strftime("%H:%M:%SZ")
        which = f"{name} (attempt {attempt})" if attempt else str(name)
        stdout.say(" ".join(part for part in (clock, f"{event.kind:14}", which, event.message) if part))

    def view(self, view: FleetView) -> None:
        """Shows how many units stand where."""
        where = Counter(_standing(unit.over, unit.takes_room, unit.held) for unit in view.units)
        figures = ", ".join(f"{where[name]:,} {name}" for name in ("over", "at work", "held", "waiting") if where[name])
        if figures != self._figures:
            self._figures = figures
            if self._json:
                json_line("fleet", **where)
            else:
                stdout.say(f"          {figures} of {len(view.units):,}")

    def trouble(self, text: str) -> None:
        """Shows what is wrong at the moment."""
        if text:
            stderr.say(text, style="yellow")


def _standing(over: bool, at_work: bool, held: bool) -> str:
    return "over" if over else "at work" if at_work else "held" if held else "waiting"
