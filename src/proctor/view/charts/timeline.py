"""Events over time: one lane for each kind, with a bar for whatever lasted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from proctor.rows import Event
from proctor.view.charts.scale import Scale, Tick
from proctor.view.formats import clip, since

WIDTH = 980
_LEFT, _RIGHT, _LANE, _TOP = 180, 16, 26, 8
_MOST_LANES = 16
_MARK = 8.0  # pixels
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)  # seconds
_TROUBLE = (
    "crash",
    "stall",
    "fail",
    "fell_back",
    "lost",
    "died",
    "killed",
    "opened",
    "quarantine",
    "oom",
    "poison",
    "convicted",
    "cut_short",
    "aside",
)

_ENDS = {
    "engine.started": "engine.closed",
    "quarantine.started": "quarantine.ended",
    "breaker.opened": "breaker.closed",
}
"""What ends, for the same engine, what another kind of event began."""


class Mark(NamedTuple):
    """One or more events of a kind at (nearly) the same time."""

    x: float
    events: int
    title: str


class Bar(NamedTuple):
    """Something that lasted."""

    x: float
    width: float
    title: str


@dataclass(frozen=True, slots=True)
class Lane:
    """All events of one kind."""

    kind: str
    y: float
    events: int
    trouble: bool
    marks: list[Mark]
    bars: list[Bar]


@dataclass(frozen=True, slots=True)
class Timeline:
    """A chart, in pixels."""

    lanes: list[Lane]
    ticks: list[Tick]
    height: int
    width: int = WIDTH
    left: int = _LEFT


def is_trouble(kind: str) -> bool:
    """Whether events of this kind are faults, or what was done about one."""
    return any(word in kind for word in _TROUBLE) and not kind.endswith((".started", ".ended", ".closed"))


def timeline(events: Sequence[Event]) -> Timeline | None:
    """The chart of `events`; None when there are none."""
    if not events:
        return None
    begin, end = min(e.time for e in events), max(e.time for e in events)
    across = Scale(begin, max(end, begin + 1), _LEFT, WIDTH - _RIGHT)
    sweeps = _sweeps(events)
    bars = _bars(sweeps, across)
    others: dict[str, list[Event]] = {}
    for event in events:
        if event.kind not in ("sweep.started", "sweep.ended"):
            others.setdefault(event.kind, []).append(event)
    ends = {kind: others.get(end, []) for kind, end in _ENDS.items()}
    lanes = [Lane("sweeps", _y(0), len(sweeps), trouble=False, marks=[], bars=bars)]
    ordered = sorted(others.items(), key=lambda item: (not is_trouble(item[0]), item[1][0].time))
    for kind, some in ordered[: _MOST_LANES - 1]:
        lanes.append(
            Lane(clip(kind, 24), _y(len(lanes)), len(some), is_trouble(kind), *_drawn(some, ends.get(kind), across))
        )
    return Timeline(lanes, _ticks(across, begin), int(_y(len(lanes)) + 14))


def sweep_seconds(events: Sequence[Event]) -> float:
    """Seconds that the sweeps took together; those without an end do not count."""
    return sum(end.time - start.time for start, end in _sweeps(events) if end is not None)


def _sweeps(events: Sequence[Event]) -> list[tuple[Event, Event | None]]:
    """Start and end of each sweep. They follow one another: an end belongs to the start before it."""
    sweeps: list[tuple[Event, Event | None]] = []
    for event in events:
        if event.kind == "sweep.started":
            sweeps.append((event, None))
        elif event.kind == "sweep.ended" and sweeps:
            sweeps[-1] = (sweeps[-1][0], event)
    return sweeps


def _y(lane: int) -> float:
    return _TOP + _LANE * lane + _LANE / 2


def _bars(sweeps: Sequence[tuple[Event, Event | None]], across: Scale) -> list[Bar]:
    """A bar for each sweep. Of those that would stand on the same pixels the first is drawn, and has their number:
    a run that was resumed all the time has as many as it likes."""
    drawn: dict[tuple[int, int], Bar] = {}
    counts: Counter[tuple[int, int]] = Counter()
    for start, end in sweeps:
        bar = _bar(start, end, across)
        place = round(bar.x), round(bar.width)
        drawn.setdefault(place, bar)
        counts[place] += 1
    more = {place: f" (and {count - 1:,} more)" if count > 1 else "" for place, count in counts.items()}
    return [bar._replace(title=bar.title + more[place]) for place, bar in drawn.items()]


def _bar(start: Event, end: Event | None, across: Scale) -> Bar:
    x = across(start.time)
    if end is None:
        return Bar(x, 2.0, f"{clip(start.message, 160)}, without an end")
    said = f"{clip(start.message, 160)}, {clip(end.message, 160)}"
    return Bar(x, max(2.0, round(across(end.time) - x, 1)), said)


def _drawn(events: Sequence[Event], ends: Sequence[Event] | None, across: Scale) -> tuple[list[Mark], list[Bar]]:
    """Marks, and bars for what is known to have lasted longer than a mark is wide."""
    points, bars = [], []
    for event in events:
        begin, end = _span(event, ends)
        x, width = across(max(begin, across.low)), across(end) - across(max(begin, across.low))
        if width > _MARK:
            bars.append(Bar(x, round(width, 1), f"{_title(event, 1, across.low)}, {since(end - begin)[1:]}"))
        else:
            points.append(event)
    return _marks(points, across), bars


def _span(event: Event, ends: Sequence[Event] | None) -> tuple[float, float]:
    """Its beginning and its end; an event that tells how long something took was made at the end of it."""
    if ends is None:
        return event.time - max(0.0, event.duration or 0.0), event.time
    end = next((end.time for end in ends if end.engine == event.engine and end.time >= event.time), event.time)
    return event.time, end


def _marks(events: Sequence[Event], across: Scale) -> list[Mark]:
    """Events that fall on the same pixel are one mark."""
    counts: Counter[int] = Counter()
    first: dict[int, Event] = {}
    for event in events:
        pixel = round(across(event.time))
        counts[pixel] += 1
        first.setdefault(pixel, event)
    return [Mark(float(x), n, _title(first[x], n, across.low)) for x, n in counts.items()]


def _title(event: Event, count: int, begin: float) -> str:
    more = f" (and {count - 1} more)" if count > 1 else ""
    return f"{since(event.time - begin)} {event.kind}{more}: {clip(event.message, 160)}"


def _ticks(across: Scale, begin: float) -> list[Tick]:
    span = across.high - across.low
    step = next((step for step in _STEPS if span / step <= 8), 86400 * (int(span / 86400 / 8) + 1))
    return [Tick(across(begin + i * step), since(i * step)) for i in range(int(span / step) + 1)]
