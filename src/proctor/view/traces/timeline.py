"""What the page of a timeline shows, and the page of one of its events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from proctor.rows import UserError
from proctor.trace.export.tracks import process_name
from proctor.trace.timeline.events import Event, Kind, Reader
from proctor.trace.timeline.lanes import GROUPS, KINDS, Events, Group, Lane, Numbers, Row
from proctor.trace.timeline.related import Key, counterparts, longest_of, ranges_around
from proctor.view.charts.trace_lanes import TraceLanes, trace_lanes
from proctor.view.traces.addresses import TimelineAddress, key_of
from proctor.view.traces.binning import inside
from proctor.view.traces.naming import Named, lane_name, named, place_name, short_of, thread_names
from proctor.view.traces.shelf import OpenTrace
from proctor.view.traces.window import Window

MOST_LONGEST = 25
_AROUND = 24
"""Times its length that is shown around one event."""


class Longest(NamedTuple):
    """A line of the table of the longest events: its part in the window, ns, and on which lane it is."""

    named: Named
    part: int
    lane: Lane


class LaneLine(NamedTuple):
    """A line of the table of lanes: how many events lie in the window, and their parts in it summed up, ns."""

    name: str
    place: str
    events: int
    total: int


@dataclass(frozen=True, slots=True)
class Shown:
    """A timeline.

    Attributes:
        window: what is shown of the trace's time.
        picture: its lanes.
        named: events that are drawn one by one, and the longest ones, by place.
        names: of lanes that are drawn, and of what they belong to.
        longest: events with the largest part in the window.
        lanes: every lane of the groups that are shown.
        groups: each of the trace's groups, and whether it is shown.
        total: events in the window.
        marked: place of the event that stands out.
    """

    window: Window
    picture: TraceLanes
    named: dict[int, Named]
    names: dict[Lane, tuple[str, str]]
    longest: list[Longest]
    lanes: list[LaneLine]
    groups: list[tuple[Group, bool]]
    total: int
    marked: int | None


def shown(opened: OpenTrace, asked: TimelineAddress) -> tuple[Shown, TimelineAddress]:
    """The timeline that an address asks for, and the address with what it left to be found.

    Raises:
        UserError: the address names what the trace does not have.
    """
    events = opened.events
    asked, window = _asked(opened, asked)
    there = tuple(group for group in GROUPS if any(row.lane.group is group for row in events.rows))
    chosen = [group for group in there if group in asked.groups] or list(there)
    rows = [row for row in events.rows if row.lane.group in chosen]
    marked = place_of(events, key_of(asked.mark)) if asked.mark else None
    picture = trace_lanes(events, window, rows, asked.first, marked)
    parts = _parts(events, window, rows)
    best = _longest(parts, MOST_LONGEST)
    boxes = [box.place for strip in picture.strips for box in strip.boxes]
    names = named(opened.trace, events, [*boxes, *(place for place, _, _ in best)])
    threads = thread_names(opened.trace)
    known = {row.lane: (lane_name(row.lane, threads), place_name(opened.trace, row.lane)) for row in rows}
    view = Shown(
        window=window,
        picture=picture,
        named=names,
        names=known,
        longest=[Longest(names[place], part, lane) for place, part, lane in best if place in names],
        lanes=_lines(parts, known),
        groups=[(group, group in chosen) for group in there],
        total=sum(len(part.places) for part in parts),
        marked=marked,
    )
    return view, replace(asked, of="")


def place_of(events: Events, key: Key) -> int | None:
    """The place of an event among all; None if it is not held."""
    places = np.flatnonzero((events.ids == key.id) & (events.kinds == KINDS.index(key.kind)))
    return int(places[0]) if len(places) else None


def around(events: Events, place: int) -> Window:
    """A window in which an event can be seen with what lies before and after it."""
    begin, end = int(events.starts[place]), int(events.ends[place])
    more = max(end - begin, 1_000) * _AROUND // 2
    return Window.around(begin - more, end + more, events.span)


def event_page(opened: OpenTrace, key: Key) -> dict[str, Any]:
    """What the page of an event shows.

    Raises:
        UserError: the trace has no such event.
    """
    reader = Reader(opened.trace)
    event = reader.some(key.kind, [key.id]).get(key.id)
    if event is None:
        raise UserError("no such event", where=f"{key.kind}:{key.id}")
    others = [(other, found) for other in counterparts(opened.trace, event) if (found := _one(reader, other))]
    place = place_of(opened.events, key)
    return {
        "event": event,
        "process": process_name(opened.trace, event.process),
        "short": short_of(event),
        "begin": event.start - opened.events.zero,
        "others": [(f"{other.kind}:{other.id}", short_of(found), found) for other, found in others],
        "ranges": _ranges(opened, reader, key, event, [found for _, found in others]),
        "around": None if place is None else around(opened.events, place),
    }


class _Part(NamedTuple):
    row: Row
    places: Numbers
    lengths: Numbers


def _asked(opened: OpenTrace, asked: TimelineAddress) -> tuple[TimelineAddress, Window]:
    """The address with the event that it names by what ran, if it does so, and the window."""
    events = opened.events
    if not asked.of:
        return asked, Window.of(asked.begin, asked.end, events.span)
    kind, _, name = asked.of.partition(":")
    known = [one for one in Kind if one == kind]
    key = longest_of(opened.trace, known[0], name) if known else None
    place = None if key is None else place_of(events, key)
    if key is None or place is None:
        raise UserError("nothing of that name ran in this trace", where=asked.of[:80])
    return replace(asked, mark=f"{key.kind}:{key.id}"), around(events, place)


def _parts(events: Events, window: Window, rows: Sequence[Row]) -> list[_Part]:
    """For each row which events lie in the window, and how long."""
    found = []
    for row in rows:
        starts, ends = events.starts[row.first : row.last], events.ends[row.first : row.last]
        at = inside(starts, ends, window.begin, window.end)
        lengths = np.minimum(ends[at], window.end) - np.maximum(starts[at], window.begin)
        found.append(_Part(row, at + row.first, lengths))
    return found


def _longest(parts: Sequence[_Part], most: int) -> list[tuple[int, int, Lane]]:
    """Place, length in the window and lane of the longest events, the longest first."""
    found: list[tuple[int, int, Lane]] = []
    for part in parts:
        best = (
            np.argsort(part.lengths, kind="stable")[-most:]
            if len(part.lengths) <= most
            else (np.argpartition(part.lengths, -most)[-most:])
        )
        found += [(int(part.places[at]), int(part.lengths[at]), part.row.lane) for at in best]
    return sorted(found, key=lambda one: (-one[1], one[0]))[:most]


def _lines(parts: Sequence[_Part], names: dict[Lane, tuple[str, str]]) -> list[LaneLine]:
    counts: dict[Lane, int] = {}
    totals: dict[Lane, int] = {}
    for part in parts:
        counts[part.row.lane] = counts.get(part.row.lane, 0) + len(part.places)
        totals[part.row.lane] = totals.get(part.row.lane, 0) + int(part.lengths.sum())
    return [LaneLine(*names[lane], counts[lane], totals[lane]) for lane in counts]


def _one(reader: Reader, key: Key) -> Event | None:
    return reader.some(key.kind, [key.id]).get(key.id)


def _ranges(
    opened: OpenTrace, reader: Reader, key: Key, event: Event, others: Sequence[Event]
) -> list[tuple[str, Event]]:
    """Ranges that were open where the event, or the call that asked for it, began."""
    on_cpu = next((one for one in (event, *others) if one.thread is not None), None)
    if on_cpu is None or on_cpu.thread is None:
        return []
    ids = ranges_around(opened.trace, on_cpu.thread, on_cpu.start)
    found = reader.some(Kind.RANGE, ids)
    return [(f"{Kind.RANGE}:{one}", found[one]) for one in ids if one in found and Key(Kind.RANGE, one) != key]
