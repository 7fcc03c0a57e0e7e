"""The fleet as its directory says it is now: people and checkpoints add to it while a watcher is at work."""

from __future__ import annotations

from collections.abc import Callable

from proctor.fleet import words
from proctor.fleet.act import Actor
from proctor.fleet.arriving import Arrivals
from proctor.fleet.book import Book
from proctor.fleet.cells import Unit
from proctor.fleet.folder import DOCUMENT, Fleet, FleetDir
from proctor.rows import UserError
from proctor.spec import Checkpoint
from proctor.spec.fleet import WatchSpec

_FIND_SECONDS = 30.0
_NAMED = 20
"""Most units that one event names."""


class Current:
    """Follows ``fleet.json``, and adds the checkpoints that come.

    Attributes:
        fleet: as it was last understood.
        units: of it; none before the first `load`.

    Args:
        place: the fleet directory.
        actor: writes down what is added.
        book: knows whether the fleet's beginning was written down, and the time.
        trouble: is told what is wrong, once.
        pace: seconds that the waits are counted in.

    Raises:
        UserError: there is no fleet, or it was moved or copied here.
    """

    def __init__(self, place: FleetDir, actor: Actor, book: Book, trouble: Callable[[str], None], pace: float) -> None:
        self._place, self._actor, self._book, self._trouble, self._pace = place, actor, book, trouble, pace
        self._first = self.fleet = place.fleet()
        place.check_place(self.fleet)
        self.units: list[Unit] = []
        self._stored = b""
        self._arrivals, self._next_find = Arrivals(place, self._refuse), 0.0
        self._told: dict[str, str] = {}

    def load(self) -> list[str]:
        """Takes over what the fleet directory says now; gives the names of the units that are new to this watcher.

        Raises:
            UserError: it is damaged, and was never understood (later that is only told: somebody may be editing it); or
                it is that of another fleet.
            OSError: it cannot be read.
        """
        stored = self._place.folder.read(DOCUMENT)
        if stored == self._stored:
            return []
        try:
            fleet = self._place.fleet()
            self._place.check_place(fleet)
            units = fleet.units()
        except UserError as error:
            if not self._stored:
                raise
            self.tell("record", f"the fleet goes on as it was: {error}")
            return []
        if fleet.id != self._first.id:
            raise UserError(f"another fleet is here now ({fleet.id})", where=self._place.location)
        known = {unit.name for unit in self.units}
        self.fleet, self.units, self._stored = fleet, units, stored
        self.tell("record", _not_heeded(self._first, fleet))
        return [unit.name for unit in units if unit.name not in known]

    def refresh(self) -> None:
        """Takes over what has been added: by a person, or by checkpoints that have come.

        Raises:
            UserError, OSError: as `load`.
        """
        first = not self._stored
        added = self.load()
        if isinstance(self.fleet.spec.matrix.checkpoints, WatchSpec) and self._book.now() >= self._next_find:
            self._next_find = self._book.now() + _FIND_SECONDS * self._pace
            self._look_for_more()
            added += self.load()
        if first and not self._book.begun:
            self._actor.record(words.FLEET_CREATED, units=len(added))
        elif added and not first:
            more = f" and {len(added) - _NAMED:,} more" if len(added) > _NAMED else ""
            self._actor.record(words.FLEET_EXTENDED, ", ".join(added[:_NAMED]) + more, units=len(added))

    def tell(self, topic: str, text: str) -> None:
        """Tells what is wrong with `topic`, whenever that is something else than before; nothing if it is empty."""
        if text != self._told.get(topic, ""):
            self._told[topic] = text
            if text:
                self._trouble(text)

    def _look_for_more(self) -> None:
        try:
            self._arrivals.take(self.fleet)
            self.tell("checkpoints", "")
        except UserError as error:  # a directory that is away now is no end
            self.tell("checkpoints", f"no new checkpoints are taken: {error}")

    def _refuse(self, checkpoint: Checkpoint, reason: str) -> None:
        self._actor.record(words.CHECKPOINT_REFUSED, reason, checkpoint=checkpoint.name, path=checkpoint.path)


def _not_heeded(before: Fleet, now: Fleet) -> str:
    """What a submission has changed that a watcher which is at work goes on without; empty if nothing."""
    kept = {
        "cluster.address": (before.spec.cluster.address, now.spec.cluster.address),
        "notify": (before.spec.notify, now.spec.notify),
        "metrics": (before.spec.metrics, now.spec.metrics),
    }
    changed = [name for name, (old, new) in kept.items() if old != new]
    return f"{', '.join(changed)}: changed, which counts from the next watcher on" if changed else ""
