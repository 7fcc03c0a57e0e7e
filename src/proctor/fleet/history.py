"""What the fleet's events say of a unit's tries: how many, for how long, and how they ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from proctor.fleet import words
from proctor.rows import Event

_WHY = frozenset({words.UNIT_STOPPING, words.UNIT_STUCK, words.UNIT_REQUEUED, words.UNIT_GIVEN_UP, words.UNIT_GONE})
"""Events whose message says why a try ended, or does not end."""


@dataclass(slots=True)
class Tries:
    """The tries of one unit.

    Attributes:
        attempts: how many there were.
        seconds: that their jobs ran, without the time that they waited for a start.
        under_way: one has been admitted and not come to its end.
        given_up: nobody tries it any more.
        held: a person does not want it to run.
        why: the reason for which the last one was stopped, queued again or given up.
    """

    attempts: int = 0
    seconds: float = 0.0
    under_way: bool = False
    given_up: bool = False
    why: str = ""
    held: bool = False
    since: float | None = field(default=None, repr=False)


def tries_of(events: Iterable[Event], now: float) -> dict[str, Tries]:
    """The tries of every unit that was ever admitted.

    Args:
        events: of the fleet, in their order.
        now: until when a job counts that runs, in seconds since the epoch.
    """
    found: dict[str, Tries] = {}
    for event in events:
        unit = event.data.get("unit")
        if isinstance(unit, str):
            _add(found.setdefault(unit, Tries()), event)
    for tries in found.values():
        _stop(tries, now)
    return found


def _add(tries: Tries, event: Event) -> None:
    if event.kind == words.UNIT_ADMITTED:
        number = event.data.get("attempt")
        tries.attempts = max(tries.attempts, int(number) if isinstance(number, int | float) else tries.attempts + 1)
        tries.under_way, tries.given_up, tries.why = True, False, ""
    elif event.kind == words.UNIT_STARTED:
        tries.since = event.time
    elif event.kind in _WHY:
        tries.why = event.message or tries.why
    if event.kind in (words.UNIT_GIVEN_UP, words.UNIT_REQUEUED):
        tries.given_up = event.kind == words.UNIT_GIVEN_UP
    if event.kind in words.FREEING:
        _stop(tries, event.time)
        tries.under_way = False


def _stop(tries: Tries, moment: float) -> None:
    if tries.since is not None:
        tries.seconds += max(0.0, moment - tries.since)
        tries.since = None
