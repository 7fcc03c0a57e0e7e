"""The fleet's history, unit by unit: what ``events.jsonl`` adds up to. Made anew by every watcher."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from proctor.fleet import words
from proctor.fleet.view import Rows
from proctor.rows import Event

_REST_SECONDS, _LONGEST_REST = 15.0, 600.0
"""Seconds before a second try, and at most; each further failure doubles them."""
_SHORTEST_REST = 5.0
"""Seconds after a second interruption by the cluster, likewise; after the first one there are none."""
ENDED, GIVEN_UP = "ended", "given up"
"""Last words of a unit."""
_MISTAKE = 1
"""Exit code of a run that was refused."""


@dataclass(slots=True)
class Attempt:
    """A try of a unit that is not over, as the events add up to it.

    Times are moments of `time.monotonic` in this process, and events change it; `AttemptView` is what was seen of it at
    one moment, with ages in place of them. They stay two shapes, for `stopping` would otherwise mean two things.
    """

    number: int
    submission: str
    known: bool = False
    started: bool = False
    stopping: float | None = None
    killing: float | None = None
    kills: int = 0
    stuck: bool = False
    reason: str = ""
    asked: bool = False


@dataclass(slots=True)
class History:
    """One unit so far.

    Attributes:
        tried: tries so far.
        attempt: the one that is under way.
        failures: tries that count.
        interruptions: tries that the cluster interrupted.
        waiting: it stands in the queue.
        over: `ENDED` or `GIVEN_UP`, empty before.
        exit_code: of its run, once it has ended by itself.
        last: why the last try ended.
        hopeless: why another try has no prospect.
        rested: when it may be tried again.
        by_hand: somebody else holds its run directory, or did at the last look.
        rows: of its run when that last came to its end.
    """

    tried: int = 0
    attempt: Attempt | None = None
    failures: int = 0
    interruptions: int = 0
    waiting: bool = True
    over: str = ""
    exit_code: int | None = None
    last: str = ""
    hopeless: str = ""
    rested: float = 0.0
    by_hand: bool = False
    rows: Rows | None = None
    mistakes: list[str] = field(default_factory=list)


class Book:
    """Adds up events. Ages of what earlier watchers wrote go by the wall clock, which may have jumped since; those of
    what this process writes do not.

    Args:
        monotonic: a clock that never jumps, in seconds.
        wall: the clock that events are stamped with.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._monotonic, self._wall = monotonic, wall
        self._units: dict[str, History] = {}
        self.begun = False
        """Whether the beginning of the fleet was written down."""

    def read(self, events: Iterable[Event]) -> None:
        """Adds what earlier watchers wrote."""
        for event in events:
            self._add(event, self._monotonic() - max(0.0, self._wall() - event.time))

    def add(self, event: Event) -> None:
        """Adds what happens now."""
        self._add(event, self._monotonic())

    def unit(self, name: str) -> History:
        """What is known of a unit."""
        return self._units.setdefault(name, History())

    def now(self) -> float:
        """By the clock that never jumps."""
        return self._monotonic()

    def since(self, moment: float | None) -> float | None:
        """Seconds since a moment of `monotonic`."""
        return None if moment is None else max(0.0, self._monotonic() - moment)

    def rest(self, unit: str) -> float:
        """Seconds until a unit may be tried again."""
        return max(0.0, self.unit(unit).rested - self._monotonic())

    def _add(self, event: Event, now: float) -> None:
        name = event.data.get("unit")
        take = _TAKE.get(event.kind)
        self.begun = self.begun or event.kind == words.FLEET_CREATED
        if isinstance(name, str) and take is not None:
            take(self.unit(name), event, now)


def _under_way(unit: History, event: Event) -> Attempt | None:
    """The attempt that an event is about, if it is the one under way: a watcher that has lost the fleet without knowing
    it, or storage that answers late, can leave words about an earlier one."""
    return unit.attempt if unit.attempt is not None and unit.attempt.number == _number(event) else None


def _admitted(unit: History, event: Event, _now: float) -> None:
    number = _number(event)
    if number > unit.tried:
        unit.attempt = Attempt(number, str(event.data.get("submission", "")))
        unit.tried, unit.waiting, unit.over = number, False, ""


def _adopted(unit: History, event: Event, now: float) -> None:
    _admitted(unit, event, now)
    if (attempt := _under_way(unit, event)) is not None:
        attempt.known = True


def _started(unit: History, event: Event, _now: float) -> None:
    if (attempt := _under_way(unit, event)) is not None:
        attempt.known = attempt.started = True


def _stopping(unit: History, event: Event, now: float) -> None:
    if (attempt := _under_way(unit, event)) is not None:
        attempt.stopping, attempt.reason = now, event.message
        attempt.asked = bool(event.data.get("asked"))


def _killed(unit: History, event: Event, now: float) -> None:
    if (attempt := _under_way(unit, event)) is not None:
        attempt.killing, attempt.kills = now, attempt.kills + 1


def _stuck(unit: History, event: Event, _now: float) -> None:
    if (attempt := _under_way(unit, event)) is not None:
        attempt.stuck = True


def _gone(unit: History, event: Event, now: float) -> None:
    if _under_way(unit, event) is None:
        return
    unit.attempt, unit.last = None, event.message
    if event.data.get("counts"):
        _failed(unit, now)
    elif not event.data.get("asked"):
        unit.interruptions += 1
        unit.rested = now + (_doubled(_SHORTEST_REST, unit.interruptions - 2) if unit.interruptions > 1 else 0.0)


def _ended(unit: History, event: Event, now: float) -> None:
    given, complete = event.data.get("exit_code"), bool(event.data.get("complete"))
    if _under_way(unit, event) is None and not (complete and unit.attempt is None):
        return
    code = int(given) if isinstance(given, int | float) else 0
    unit.attempt, unit.waiting, unit.exit_code = None, False, code
    unit.last, unit.rows = event.message or f"exit code {code}", _rows(event)
    if complete:
        unit.over = ENDED
        return
    _failed(unit, now)
    if code == _MISTAKE:
        if unit.last in unit.mistakes:
            unit.hopeless = f"refused again with the same words: {unit.last}"
        unit.mistakes.append(unit.last)


def _failed(unit: History, now: float) -> None:
    unit.failures += 1
    unit.rested = now + _doubled(_REST_SECONDS, unit.failures - 1)


def _doubled(seconds: float, times: int) -> float:
    return min(_LONGEST_REST, seconds * 2.0 ** min(times, 30))


def _requeued(unit: History, event: Event, _now: float) -> None:
    unit.waiting, unit.over = True, ""
    if event.data.get("afresh"):
        unit.failures, unit.interruptions, unit.rested, unit.hopeless = 0, 0, 0.0, ""
        unit.mistakes.clear()


def _given_up(unit: History, event: Event, _now: float) -> None:
    unit.over, unit.waiting, unit.last = GIVEN_UP, False, event.message


def _number(event: Event) -> int:
    number = event.data.get("attempt")
    return number if isinstance(number, int) else 1


def _rows(event: Event) -> Rows | None:
    found = [event.data.get(name) for name in Rows._fields]
    counts = [count for count in found if isinstance(count, int)]
    return Rows(*counts) if len(counts) == len(found) else None


_TAKE: dict[str, Callable[[History, Event, float], Any]] = {
    words.UNIT_ADMITTED: _admitted,
    words.UNIT_ADOPTED: _adopted,
    words.UNIT_STARTED: _started,
    words.UNIT_STOPPING: _stopping,
    words.UNIT_KILLED: _killed,
    words.UNIT_STUCK: _stuck,
    words.UNIT_GONE: _gone,
    words.UNIT_ENDED: _ended,
    words.UNIT_REQUEUED: _requeued,
    words.UNIT_GIVEN_UP: _given_up,
}
