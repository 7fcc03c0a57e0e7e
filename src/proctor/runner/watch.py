"""Looks at a sweep from beside it and says when it has to end. `judge` is pure logic over what can be seen."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

from proctor.runner.course import Swept
from proctor.runner.hub import HubView
from proctor.runner.stoppable import Stoppable
from proctor.spec import LimitsSpec

SILENT_SECONDS = 60.0
"""An engine's actor that says nothing for so long is lost: with its node, or frozen. It has a pulse every 2 s."""
STILL_SECONDS = 60.0
"""With five times the stall deadline: how long nothing at all may move before readers count as stuck."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What can be seen of a sweep at one moment.

    Attributes:
        silent: seconds since the last block came back, or since the sweep began.
        hub: what the engines say.
        answered, errors: rows of this checkpoint that came back with an answer, and with a final error.
        room: engines for which the cluster has room now.
    """

    silent: float
    hub: HubView
    answered: int
    errors: int
    room: int = 1


class Verdict(NamedTuple):
    """Why a sweep has to end, and what that makes of it."""

    reason: str
    swept: Swept


class WatchedSweep(Stoppable):
    """A sweep under way with so many engines, which ends when the watch has a verdict."""

    def __init__(self, engines: int) -> None:
        super().__init__()
        self.engines = engines
        self.verdict: Verdict | None = None
        self._moved_at = time.monotonic()

    @property
    def silent(self) -> float:
        """Seconds since a block came back, or since the sweep began."""
        return time.monotonic() - self._moved_at

    def moved(self) -> None:
        """A block has come back."""
        self._moved_at = time.monotonic()

    def end(self, verdict: Verdict) -> None:
        """Ends the sweep, if nothing has ended it yet."""
        self.verdict = self.verdict or verdict
        self.stop(verdict.reason)


def judge(sight: Sight, limits: LimitsSpec, engines: int) -> Verdict | None:
    """Whether the sweep has to end now."""
    return (
        _too_many_errors(sight, limits)
        or _no_engine(sight, engines)
        or _lost_engines(sight)
        or _crowded_out(sight, engines)
        or _stuck(sight, limits)
    )


def _too_many_errors(sight: Sight, limits: LimitsSpec) -> Verdict | None:
    rows = sight.answered + sight.errors
    over = rows >= limits.min_rows and sight.errors > limits.max_error_rate * rows
    if limits.on_error_rate == "continue" or not over:
        return None
    return Verdict(
        f"stopped by limits.on_error_rate: {sight.errors:,} of {rows:,} rows ended in an error "
        f"({sight.errors / rows:.1%}, limits.max_error_rate is {limits.max_error_rate:.1%})",
        Swept(halted=True),
    )


def _no_engine(sight: Sight, engines: int) -> Verdict | None:
    """Every engine is out of order; an engine that was never placed does not count once the others are for long."""
    broken = sight.hub.broken
    alive = [name for name, pulse in sight.hub.pulses.items() if pulse.age < SILENT_SECONDS]
    all_of_them = len(broken) >= engines
    all_there_are = sight.silent >= SILENT_SECONDS and bool(alive) and all(name in broken for name in alive)
    if not (all_of_them or all_there_are):
        return None
    return Verdict(f"the engine was given up: {next(iter(broken.values()))}", Swept(halted=True))


def _lost_engines(sight: Sight) -> Verdict | None:
    """Rows are with engines that are no more, and nothing else is under way."""
    at_work = {name: pulse for name, pulse in sight.hub.pulses.items() if pulse.rows}
    lost = [name for name, pulse in at_work.items() if pulse.age >= SILENT_SECONDS]
    if sight.silent < SILENT_SECONDS or not lost or len(lost) < len(at_work):
        return None
    return Verdict(f"{', '.join(lost)}: no word for {SILENT_SECONDS:g} s", Swept(failed=True))


def _crowded_out(sight: Sight, engines: int) -> Verdict | None:
    """Nodes are gone, and the engines have taken the place of those who read for them."""
    quiet = min(sight.silent, sight.hub.still) >= SILENT_SECONDS and not _at_work(sight)
    if not quiet or sight.room >= engines:
        return None
    return Verdict(f"the cluster has shrunk: {engines} engines leave no room for readers", Swept(failed=True))


def _at_work(sight: Sight) -> bool:
    return any(pulse.rows for pulse in sight.hub.pulses.values())


def _stuck(sight: Sight, limits: LimitsSpec) -> Verdict | None:
    """Engines are there and have no rows: whoever reads, prepares or marks does not come back."""
    still = STILL_SECONDS + 5 * limits.stall_seconds
    idle = bool(sight.hub.pulses) and not _at_work(sight)
    if min(sight.silent, sight.hub.still) < still or not idle:
        return None
    return Verdict(f"nothing has moved for {still:g} s: rows are stuck in reading, preparing or marking", Swept())
