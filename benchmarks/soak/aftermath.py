"""What followed each fault, as far as the run's events, the samples and the drivers' ends tell."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.soak.keeper import Life
from benchmarks.soak.samples import Sample
from benchmarks.soak.strikes import Struck
from proctor.rows import Event

_ENDS = ("engine.crashed", "engine.stalled", "engine.init_failed")
_OVERCOME_SECONDS = 45.0
"""A driver that goes on for so long after its disk was full did not end because of it."""
_SLACK = 0.5
"""Seconds: an event may be stamped a little before the signal was noted down."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that was seen of a soak from outside."""

    events: Sequence[Event]
    samples: Sequence[Sample]
    lives: Sequence[Life]


def follow(struck: Sequence[Struck], seen: Evidence) -> None:
    """Fills in `followed` and `recovery_s`."""
    for fault in struck:
        if fault.target is None:
            fault.followed = fault.followed or "no target"
            continue
        what = fault.strike.kind.partition(".")[0]
        if what in ("driver", "cut", "disk"):
            _driver(fault, seen)
        elif what == "engine":
            _engine(fault, seen)
        elif what == "actor":
            _actor(fault, seen)
        elif what == "hub":
            _replaced(fault, seen, "hub")
        else:
            fault.followed = "the run went on"


def by_kind(struck: Sequence[Struck]) -> list[dict[str, Any]]:
    """One line a kind: how often it had its turn and hit something, what followed, median seconds to recover."""
    groups: dict[str, list[Struck]] = defaultdict(list)
    for fault in struck:
        groups[fault.strike.kind].append(fault)
    lines = []
    for kind, faults in sorted(groups.items()):
        times = [fault.recovery_s for fault in faults if fault.recovery_s is not None]
        lines.append(
            {
                "kind": kind,
                "turns": len(faults),
                "hit": sum(fault.target is not None for fault in faults),
                "followed": dict(Counter(fault.followed for fault in faults).most_common()),
                "recovery_s": round(median(times), 1) if times else None,
            }
        )
    return lines


def _driver(fault: Struck, seen: Evidence) -> None:
    life = seen.lives[fault.driver - 1]
    if fault.strike.kind == "disk.full" and life.until > fault.time + _OVERCOME_SECONDS:
        fault.followed = "the run went on"
        return
    fault.followed = life.ended + (f", {fault.followed}" if fault.followed else "")
    loaded = _first(seen.events, life.until, ("engine.loaded",))
    fault.recovery_s = None if loaded is None else round(loaded.time - fault.time, 1)


def _engine(fault: Struck, seen: Evidence) -> None:
    until = seen.lives[fault.driver - 1].until
    ended = _first(seen.events, fault.time, _ENDS, fault.engine)
    if ended is None or ended.time > until:
        fault.followed = "its actor or the driver ended first" if _ends_soon(fault, seen) else "no event"
        return
    fault.followed = ended.kind
    loaded = _first(seen.events, ended.time, ("engine.loaded",), fault.engine)
    fault.recovery_s = None if loaded is None else round(loaded.time - fault.time, 1)


def _actor(fault: Struck, seen: Evidence) -> None:
    if fault.strike.kind == "actor.kill":
        _replaced(fault, seen, "actor")
        return
    until = seen.lives[fault.driver - 1].until
    cut = _first(seen.events, fault.time, ("sweep.cut_short",))
    if cut is None or cut.time > until:
        fault.followed = "the driver ended first"
        return
    fault.followed, fault.recovery_s = cut.kind, round(cut.time - fault.time, 1)


def _replaced(fault: Struck, seen: Evidence, role: str) -> None:
    """The first process in that role which was not there before."""
    until = seen.lives[fault.driver - 1].until
    before = {sample.process for sample in seen.samples if sample.role == role and sample.time < fault.time}
    for sample in seen.samples:
        fresh = sample.role == role and sample.process not in before and sample.process[0] != fault.pid
        if fresh and fault.time < sample.time <= until:
            fault.followed, fault.recovery_s = f"a new {role}", round(sample.time - fault.time, 1)
            return
    fault.followed = "the driver ended first"


def _ends_soon(fault: Struck, seen: Evidence) -> bool:
    """Whether the engine's actor is not seen any more soon after."""
    pid = int(fault.engine[1:]) if fault.engine else 0
    last = max((sample.time for sample in seen.samples if sample.process[0] == pid), default=0.0)
    return last < fault.time + 15.0


def _first(events: Sequence[Event], since: float, kinds: Sequence[str], engine: str | None = None) -> Event | None:
    for event in events:
        ours = engine is None or event.engine.endswith(engine)
        if event.kind in kinds and ours and event.time >= since - _SLACK:
            return event
    return None
