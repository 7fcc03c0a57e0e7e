"""The watcher: observe, decide, act, record; until every unit has its last word."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from proctor.fleet import words
from proctor.fleet.act import Actor
from proctor.fleet.book import ENDED, GIVEN_UP, Book
from proctor.fleet.current import Current
from proctor.fleet.decide import Action, decide, why_fewer, why_idle
from proctor.fleet.folder import FleetDir
from proctor.fleet.jobs import Cluster
from proctor.fleet.notes import Notes
from proctor.fleet.observe import Observer
from proctor.fleet.silence import Clocks
from proctor.fleet.view import FleetView
from proctor.rows import Event, UserError
from proctor.runner.outcome import ExitCode
from proctor.spec.fleet import WatchSpec

_BUSY_SECONDS, _IDLE_SECONDS = 0.5, 3.0


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

    def unfailing(self) -> Ears:
        """The same, but what goes wrong with telling is nobody's trouble: a log on a full disk, a closed terminal."""
        return Ears(_unfailing(self.event), _unfailing(self.view), _unfailing(self.trouble))


_Heard = TypeVar("_Heard")


def _unfailing(hear: Callable[[_Heard], None]) -> Callable[[_Heard], None]:
    def heard(what: _Heard) -> None:
        with contextlib.suppress(OSError, ValueError):  # a text that the terminal cannot show is a ValueError
            hear(what)

    return heard


class Watcher:
    """Watches one fleet; holds its lease from `watching` on.

    Args:
        place: the fleet directory.
        cluster: where its jobs run.
        ears: who is told.
        admits: whether units are admitted, or those that run are only looked after.
        pace: seconds that the waits are counted in; less than 1 for tests.
        book: what is remembered; default: an empty one.
        clocks: by which units are silent.

    Raises:
        UserError: there is no fleet, or it was moved or copied here.
    """

    def __init__(
        self,
        place: FleetDir,
        cluster: Cluster,
        ears: Ears,
        *,
        admits: bool = True,
        pace: float = 1.0,
        book: Book | None = None,
        clocks: Callable[[], Clocks] = Clocks.read,
    ) -> None:
        self._place, self._ears, self._pace = place, ears, pace
        self.book = Book() if book is None else book
        self._observer = Observer(place, cluster, self.book, admits=admits, clocks=clocks)
        self._actor = Actor(place, cluster, self.book, ears.event, self._check_held)
        self._current = Current(place, self._actor, self.book, ears.trouble, pace)
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
                    with contextlib.suppress(OSError):  # why it ends matters more than that this is written
                        self._observer.keep(at_once=True)
                        self._actor.record(words.WATCHER_STOPPED)

    def watch(self) -> int:
        """Goes on until every unit has its last word, or is held back by a person.

        Returns:
            Exit code as of a run: 0 all complete, 2 one of them with too many errors, 1 one of them without metrics,
            3 not all complete.

        Raises:
            UserError: another watcher has taken the fleet over.
        """
        while True:
            began = self.book.now()
            view, acted = self.step()
            if view is not None and self._over(view):
                return self.exit_code()
            # A cluster with ten thousand jobs takes its time to list them, and has other things to do.
            self._pause(max(_BUSY_SECONDS if acted else _IDLE_SECONDS, self.book.now() - began))

    def until(self, enough: Callable[[FleetView], bool], seconds: float) -> bool:
        """Goes on until `enough`, for at most so many seconds. Whether it came to that.

        Raises:
            UserError: another watcher has taken the fleet over.
        """
        give_up = self.book.now() + seconds
        while True:
            view, acted = self.step()
            if view is not None and enough(view):
                return True
            if self.book.now() >= give_up:
                return False
            self._pause(_BUSY_SECONDS if acted else _IDLE_SECONDS)

    def round(self) -> None:
        """Looks once and does what follows from that, and goes on only until what had to be stopped is gone, or a
        person has been told that it cannot be.

        Raises:
            UserError: the cluster cannot be reached, or another watcher has taken the fleet over.
        """
        while True:
            view, acted = self.step()
            if view is None:
                raise UserError(self._trouble, where=self._place.location)
            if not acted and not any(unit.ending for unit in view.units):
                return
            self._pause(_BUSY_SECONDS)

    def step(self) -> tuple[FleetView | None, bool]:
        """One round. Gives what there was to see, None if the cluster or the fleet directory was out of reach, and
        whether anything was done.

        Raises:
            UserError: the fleet has another watcher now, or is no fleet any more.
        """
        try:
            self._current.refresh()
            self._put_back()
            view = self._observer.look(self._current.fleet, self._current.units)
            self._reach(view)
            actions = decide(view)
            self._check_held()
            self._current.tell("room", "" if actions else why_idle(view))
            if not actions:
                self._current.tell("cpus", why_fewer(view))
            self._actor.act(actions, self._current.fleet, self._current.units)
            self._current.tell("jobs", self._actor.untaken)
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
        self._current.load()
        view = self._observer.look(self._current.fleet, self._current.units)
        if view.room is None:
            raise UserError(f"cannot be reached: {self._observer.trouble}", where="cluster.address")
        return decide(view)

    def exit_code(self) -> int:
        """What a fleet that stands like this ends with."""
        found = [self.book.unit(unit.name) for unit in self._current.units]
        if not found or any(unit.over != ENDED for unit in found):
            return ExitCode.INCOMPLETE
        codes = {unit.exit_code for unit in found}
        return next((code for code in (ExitCode.TOO_MANY_ERRORS, ExitCode.MISTAKE) if code in codes), ExitCode.COMPLETE)

    def at_work(self, units: Iterable[str]) -> list[str]:
        """Those of `units` of which something was still there at the last look."""
        return [name for name in units if self.book.unit(name).attempt is not None]

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
        held = sum(unit.held and not (unit.over or unit.takes_room) for unit in view.units)
        grows_on = isinstance(self._current.fleet.spec.matrix.checkpoints, WatchSpec)
        if grows_on or held + sum(unit.over for unit in view.units) < len(view.units):
            return False
        code = self.exit_code()
        units = self._current.units
        complete = sum(self.book.unit(unit.name).over == ENDED for unit in units)
        text = f"{complete} of {len(units)} units complete{f', {held} held back' if held else ''}"
        try:
            self._actor.record(words.FLEET_ENDED, text, exit_code=int(code), units=len(units), complete=complete)
        except OSError as error:
            self._say(f"the fleet directory is out of reach: {error}")
            return False
        return True

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


def described(action: Action) -> str:
    """What an action would do, for a person."""
    verb = {
        "MarkGone": "note that nothing is left of",
        "MarkEnded": "note the end of",
        "MarkStuck": "call a person for",
        "GiveUp": "give up",
        "Started": "note the start of",
    }.get(type(action).__name__, type(action).__name__.lower())
    reason = getattr(action, "reason", "")
    attempt = getattr(action, "attempt", None)
    which = action.unit if attempt is None else f"{action.unit}, attempt {attempt}"
    return f"{verb} {which}{f': {reason}' if reason else ''}"
