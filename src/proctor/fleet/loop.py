"""The watcher: observe, decide, act, record; until every unit has its last word."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from proctor.fleet import words
from proctor.fleet.act import Actor
from proctor.fleet.book import ENDED, GIVEN_UP, Book
from proctor.fleet.cells import Unit
from proctor.fleet.decide import Action, decide
from proctor.fleet.finding import Look, find
from proctor.fleet.folder import DOCUMENT, FleetDir
from proctor.fleet.jobs import Cluster
from proctor.fleet.notes import Notes
from proctor.fleet.observe import Observer
from proctor.fleet.resubmit import enter
from proctor.fleet.view import FleetView
from proctor.rows import Event, UserError
from proctor.runner.outcome import ExitCode
from proctor.spec.fleet import WatchSpec

_BUSY_SECONDS, _IDLE_SECONDS = 0.5, 3.0
_FIND_SECONDS = 30.0


@dataclass(frozen=True)
class Ears:
    """Who is told how a fleet goes.

    Attributes:
        event: every event, as it is recorded.
        view: what there is to see, after each look.
        trouble: what is wrong at the moment, whenever that changes; empty when it is over.
    """

    event: Callable[[Event], None] = field(default=lambda _event: None)
    view: Callable[[FleetView], None] = field(default=lambda _view: None)
    trouble: Callable[[str], None] = field(default=lambda _text: None)


class Watcher:
    """Watches one fleet; holds its lease from `watching` on.

    Args:
        place: the fleet directory.
        cluster: where its jobs run.
        ears: who is told.
        admits: whether units are admitted, or those that run are only looked after.
        pace: seconds that the waits are counted in; less than 1 for tests.
    """

    def __init__(
        self, place: FleetDir, cluster: Cluster, ears: Ears, *, admits: bool = True, pace: float = 1.0
    ) -> None:
        self._place, self._ears, self._pace = place, ears, pace
        self.book = Book()
        self._observer = Observer(place, cluster, self.book, admits=admits)
        fleet = place.fleet()
        python = fleet.spec.cluster.python or sys.executable
        self._actor = Actor(place, cluster, self.book, ears.event, python)
        self._stored, self._fleet, self._units = b"", fleet, list[Unit]()
        self._looks: Mapping[str, Look] = {}
        self._next_find = 0.0
        self._lost = threading.Event()
        self._reason, self._trouble = "", ""
        self._reachable = True

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Holds the fleet during the block.

        Raises:
            UserError: another watcher holds it.
        """
        with self._place.held(self._lose) as lease:
            self.book.read(self._place.events())
            before = "" if lease.before is None else f"takes over from {lease.before}, which is dead"
            self._actor.record(words.WATCHER_STARTED, before)
            try:
                yield
            finally:
                if not self._lost.is_set():
                    self._observer.keep(at_once=True)
                    self._actor.record(words.WATCHER_STOPPED)

    def watch(self, enough: Callable[[FleetView, bool], bool] | None = None) -> int:
        """Goes on until every unit has its last word, or until `enough`, which is told what there was to see and
        whether anything was done then.

        Returns:
            Exit code as of a run: 0 all complete, 2 one of them with too many errors, 1 one of them without metrics,
            3 not all complete.

        Raises:
            UserError: another watcher has taken the fleet over.
        """
        while True:
            view, acted = self.step()
            if view is not None and (self._over(view) if enough is None else enough(view, acted)):
                return self.exit_code()
            self._pause(_BUSY_SECONDS if acted else _IDLE_SECONDS)

    def round(self) -> None:
        """Looks once and does what follows from that, and goes on only until what had to be stopped is gone.

        Raises:
            UserError: the cluster cannot be reached, or another watcher has taken the fleet over.
        """
        while True:
            view, acted = self.step()
            if view is None:
                raise UserError(self._trouble, where=self._place.location)
            if not acted and not stopping(view):
                return
            self._pause(_BUSY_SECONDS)

    def step(self) -> tuple[FleetView | None, bool]:
        """One round. Gives what there was to see, None if the cluster or the fleet directory was out of reach, and
        whether anything was done.

        Raises:
            UserError: the fleet has another watcher now, or is no fleet any more.
        """
        try:
            self._refresh()
            self._put_back()
            view = self._observer.look(self._fleet, self._units)
            self._reach(view)
            actions = decide(view)
            self._check_held()
            self._actor.act(actions, self._fleet, self._units)
            self._observer.keep()
        except OSError as error:  # storage that fails now may well be back soon; the lease says when it is too late
            self._check_held()
            self._say(f"the fleet directory is out of reach: {error}")
            return None, False
        if view.room is None and not view.over:
            return None, False
        self._say("")
        self._ears.view(view)
        return view, bool(actions)

    def foresee(self) -> list[Action]:
        """What would be done now; nothing is written, and the fleet need not be held.

        Raises:
            UserError: the cluster cannot be reached.
        """
        self.book.read(self._place.events())
        self._load()
        view = self._observer.look(self._fleet, self._units)
        if view.room is None:
            raise UserError(f"cannot be reached: {self._observer.trouble}", where="cluster.address")
        return decide(view)

    def exit_code(self) -> int:
        """What a fleet that stands like this ends with."""
        found = [self.book.unit(unit.name) for unit in self._units]
        if any(unit.over != ENDED for unit in found):
            return ExitCode.INCOMPLETE
        codes = {unit.exit_code for unit in found}
        return next((code for code in (ExitCode.TOO_MANY_ERRORS, ExitCode.MISTAKE) if code in codes), ExitCode.COMPLETE)

    def _put_back(self) -> None:
        """Gives units all of their attempts again that a person wants to be tried again."""
        notes = Notes(self._place.folder)
        for name in sorted(notes.to_try_again()):
            history = self.book.unit(name)
            if history.over == GIVEN_UP:
                self._actor.record(
                    words.UNIT_REQUEUED, "submitted again", unit=name, attempt=history.tried, afresh=True
                )
            notes.tried_again(name)

    def _over(self, view: FleetView) -> bool:
        if not view.over or isinstance(self._fleet.spec.matrix.checkpoints, WatchSpec):
            return False
        code = self.exit_code()
        complete = sum(self.book.unit(unit.name).over == ENDED for unit in self._units)
        text = f"{complete} of {len(self._units)} units complete"
        self._actor.record(words.FLEET_ENDED, text, exit_code=int(code), units=len(self._units), complete=complete)
        return True

    def _load(self) -> list[str]:
        """Takes over what the fleet directory says now; gives the names of the units that are new to this watcher."""
        stored = self._place.folder.read(DOCUMENT)
        if stored == self._stored:
            return []
        known = {unit.name for unit in self._units}
        self._fleet = self._place.fleet()
        self._units, self._stored = self._fleet.units(), stored
        return [unit.name for unit in self._units if unit.name not in known]

    def _refresh(self) -> None:
        """Takes over what has been added to the fleet: by a person, or by checkpoints that have come."""
        first = not self._stored
        added = self._load()
        if isinstance(self._fleet.spec.matrix.checkpoints, WatchSpec) and self.book.now() >= self._next_find:
            self._next_find = self.book.now() + _FIND_SECONDS * self._pace
            self._find()
            added += self._load()
        if first and not self.book.begun:
            self._actor.record(words.FLEET_CREATED, units=len(added))
        elif added and not first:
            self._actor.record(words.FLEET_EXTENDED, ", ".join(added), units=len(added))

    def _find(self) -> None:
        """Looks for checkpoints that have come to the watched directory; one that cannot be read now is no end."""
        try:
            found = find(self._fleet.spec, self._looks)
            self._looks = found.looks
            enter(self._place, self._fleet.spec, found.checkpoints)
        except UserError as error:
            self._ears.trouble(f"no new checkpoints are taken: {error}")

    def _reach(self, view: FleetView) -> None:
        reachable = view.room is not None
        if reachable != self._reachable:
            self._reachable = reachable
            kind, text = (words.CLUSTER_BACK, "") if reachable else (words.CLUSTER_LOST, self._observer.trouble)
            self._actor.record(kind, text)
        if not reachable:
            self._say(f"the cluster cannot be reached, nothing is decided until it is back: {self._observer.trouble}")

    def _say(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            self._ears.trouble(trouble)

    def _lose(self, reason: str) -> None:
        self._reason = reason
        self._lost.set()

    def _check_held(self) -> None:
        if self._lost.is_set():
            raise UserError(self._reason, where=self._place.location, fix="its jobs go on; look who watches it now")

    def _pause(self, seconds: float) -> None:
        self._lost.wait(seconds * self._pace)


def stopping(view: FleetView) -> bool:
    """Whether an attempt that was asked to stop is still there."""
    return any(unit.attempt is not None and unit.attempt.stopping is not None for unit in view.units)


def described(action: Action) -> str:
    """What an action would do, for a person."""
    verb = {
        "MarkGone": "note that nothing is left of",
        "MarkEnded": "note the end of",
        "GiveUp": "give up",
        "Started": "note the start of",
    }.get(type(action).__name__, type(action).__name__.lower())
    reason = getattr(action, "reason", "")
    attempt = getattr(action, "attempt", None)
    which = action.unit if attempt is None else f"{action.unit}, attempt {attempt}"
    return f"{verb} {which}{f': {reason}' if reason else ''}"
