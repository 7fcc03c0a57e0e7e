"""The tries of a fleet's units, one by one: when each was submitted, began and ended, and why. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from proctor.fleet import words
from proctor.rows import Event

Fate = Literal["submitted", "running", "stopping", "stuck", "complete", "ended", "gone"]
"""How far a try is, or how it ended: ``ended`` is a run that came to an end and is not complete."""


@dataclass(slots=True)
class Attempt:
    """One try of a unit. Times are seconds since the epoch; None where nothing was written down.

    Attributes:
        number: from 1.
        fate: how it ended, or how far it is.
        reason: why it was stopped or ended, or what its run said.
        counts: whether it counts against the tries that a unit has; None while it is not over.
        sequel: what became of the unit then: ``queued again`` or ``given up``; empty if nothing was written down.
    """

    unit: str
    number: int
    submitted: float | None = None
    started: float | None = None
    ended: float | None = None
    fate: Fate = "submitted"
    reason: str = ""
    counts: bool | None = None
    sequel: str = ""

    @property
    def over(self) -> bool:
        """Whether it has come to its end."""
        return self.fate in ("complete", "ended", "gone")

    @property
    def seconds(self) -> float | None:
        """Seconds that its run took; None while it has not ended, or if it never began."""
        return None if self.started is None or self.ended is None else max(0.0, self.ended - self.started)


def attempts_of(events: Iterable[Event]) -> list[Attempt]:
    """All tries that events tell of, in the order in which they began.

    Args:
        events: of the fleet, in their order; whatever is not about a try is passed over.
    """
    found: dict[tuple[str, int], Attempt] = {}
    for event in events:
        unit, number, take = event.data.get("unit"), event.data.get("attempt"), _TAKE.get(event.kind)
        if not isinstance(unit, str) or take is None:
            continue
        key = (unit, number if isinstance(number, int) else 1)
        if event.kind in _BEGINNING:
            found.setdefault(key, Attempt(*key))
        if key in found:
            take(found[key], event)
    return list(found.values())


def queue_of(waiting: Sequence[tuple[str, int]]) -> list[str]:
    """Units in the order in which they start: by priority, among equals as the fleet has them.

    Args:
        waiting: name and priority of each that waits, in the order of the fleet.
    """
    return [name for name, _ in sorted(waiting, key=lambda one: -one[1])]


def _admitted(attempt: Attempt, event: Event) -> None:
    attempt.submitted = event.time


def _adopted(attempt: Attempt, event: Event) -> None:
    attempt.submitted = attempt.submitted or event.time
    attempt.reason = event.message or attempt.reason


def _started(attempt: Attempt, event: Event) -> None:
    if not attempt.over:
        attempt.started, attempt.fate = event.time, "running"


def _stopping(attempt: Attempt, event: Event) -> None:
    if not attempt.over:
        attempt.fate, attempt.reason = "stopping", event.message or attempt.reason


def _stuck(attempt: Attempt, event: Event) -> None:
    if not attempt.over:
        attempt.fate, attempt.reason = "stuck", event.message or attempt.reason


def _ended(attempt: Attempt, event: Event) -> None:
    code, complete = event.data.get("exit_code"), bool(event.data.get("complete"))
    said = f"exit code {code}" if isinstance(code, int) and code else ""
    attempt.ended, attempt.fate = event.time, "complete" if complete else "ended"
    attempt.reason = "; ".join(filter(None, (said, event.message))) or attempt.reason
    attempt.counts = not complete


def _gone(attempt: Attempt, event: Event) -> None:
    if not attempt.over:
        attempt.ended, attempt.fate = event.time, "gone"
        attempt.reason, attempt.counts = event.message or attempt.reason, bool(event.data.get("counts"))


def _requeued(attempt: Attempt, event: Event) -> None:
    attempt.sequel = "queued again"
    attempt.reason = attempt.reason or event.message


def _given_up(attempt: Attempt, event: Event) -> None:
    attempt.sequel = "given up"
    attempt.reason = attempt.reason or event.message


_BEGINNING = (words.UNIT_ADMITTED, words.UNIT_ADOPTED)
_TAKE: dict[str, Callable[[Attempt, Event], None]] = {
    words.UNIT_ADMITTED: _admitted,
    words.UNIT_ADOPTED: _adopted,
    words.UNIT_STARTED: _started,
    words.UNIT_STOPPING: _stopping,
    words.UNIT_STUCK: _stuck,
    words.UNIT_ENDED: _ended,
    words.UNIT_GONE: _gone,
    words.UNIT_REQUEUED: _requeued,
    words.UNIT_GIVEN_UP: _given_up,
}
