"""Events in lanes over time: those wide enough as a box each, the others as the share of each pixel that they fill."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from proctor.trace.timeline.lanes import Events, Lane, Numbers, Row
from proctor.view.charts.scale import Scale, Tick, nice_step
from proctor.view.traces.binning import binned, edges_of, inside
from proctor.view.traces.window import Window

MOST_ELEMENTS = 4_000
"""Of SVG that a picture has at the most."""
MOST_ROWS = 48
LEFT, PLOT, RIGHT = 214, 1_000, 34
_TOP, _BOX, _ROW, _BETWEEN, _HEADING = 22, 15, 17, 5, 30
_LABELLED = 46.0
"""Pixels from which on a box has its name in it."""
_CHARACTER = 6.6
_A_BOX, _A_LABEL, _A_ROW, _EDGES = 3, 1, 5, 50
"""Elements: link, box and title of an event; its name; what a row has besides; the axis, and a marked event."""


class Box(NamedTuple):
    """An event, or the part of it that lies in the window; `place` is that among all events."""

    place: int
    x: float
    width: float
    characters: int
    """Of its name that fit into it; 0: none."""


@dataclass(frozen=True, slots=True)
class Strip:
    """A row.

    Attributes:
        row: what it shows.
        y: of its upper edge, as all heights in pixels.
        boxes: events, drawn one by one.
        dense: path of an area as high as the share of time that all other events fill; empty where there are none.
        merged: how many those are.
    """

    row: Row
    y: int
    boxes: list[Box]
    dense: str
    merged: int
    height: int = _BOX


class Heading(NamedTuple):
    """Stands above the lanes of a GPU or of a process's threads."""

    y: int
    lane: Lane


@dataclass(frozen=True, slots=True)
class TraceLanes:
    """A picture, in pixels.

    Attributes:
        per_pixel: nanoseconds.
        boxed: events that are drawn one by one.
        merged: events that are not.
        narrowest: pixels from which on events are drawn one by one.
        elements: of SVG, at most `MOST_ELEMENTS`.
        first: the first row that is shown; `shown` of `total` are.
    """

    strips: list[Strip]
    headings: list[Heading]
    ticks: list[Tick]
    height: int
    per_pixel: float
    boxed: int
    merged: int
    narrowest: int
    elements: int
    first: int
    shown: int
    total: int
    width: int = LEFT + PLOT + RIGHT
    left: int = LEFT
    right: int = LEFT + PLOT


class _Found(NamedTuple):
    """Events of a row in the window: their places among all, and their parts in the window in pixels."""

    row: Row
    places: Numbers
    x: np.ndarray[tuple[int], np.dtype[np.float64]]
    width: np.ndarray[tuple[int], np.dtype[np.float64]]


def trace_lanes(
    events: Events, window: Window, rows: Sequence[Row], first: int = 0, mark: int | None = None
) -> TraceLanes:
    """The picture of a window.

    Args:
        events: of the trace.
        window: what is shown.
        rows: from which are shown, `MOST_ROWS` at the most.
        first: the first of them to be shown.
        mark: place of an event that is drawn by itself, however short.
    """
    first = min(max(0, first), max(0, len(rows) - 1)) // MOST_ROWS * MOST_ROWS
    shown = rows[first : first + MOST_ROWS]
    found = [_found(events, window, row) for row in shown]
    headings = list(_headings(shown))
    fixed = _EDGES + _A_ROW * len(shown) + len(headings)
    narrowest = _narrowest(found, MOST_ELEMENTS - fixed)
    edges = edges_of(window.begin, window.end, PLOT)
    strips = [_strip(events, one, edges, (narrowest, mark), y) for one, y in zip(found, _heights(shown), strict=True)]
    boxed = sum(len(strip.boxes) for strip in strips)
    labels = sum(box.characters > 0 for strip in strips for box in strip.boxes)
    return TraceLanes(
        strips=strips, headings=headings, ticks=ticks(window), height=_bottom(shown),
        per_pixel=window.length / PLOT, boxed=boxed, merged=sum(strip.merged for strip in strips),
        narrowest=narrowest, elements=fixed + _A_BOX * boxed + _A_LABEL * labels,
        first=first, shown=len(shown), total=len(rows),
    )  # fmt: skip


def ticks(window: Window) -> list[Tick]:
    """Round times across the window, in a unit that suits their distance."""
    step = max(1.0, nice_step(window.length / 8))
    unit, word = next((u, w) for u, w in ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")) if step >= u)
    across = Scale(window.begin, window.end, LEFT, LEFT + PLOT)
    return across.ticks(8, lambda time: f"{time / unit:,.0f} {word}")


def _found(events: Events, window: Window, row: Row) -> _Found:
    part = slice(row.first, row.last)
    starts, ends = events.starts[part], events.ends[part]
    places = inside(starts, ends, window.begin, window.end)
    scale = PLOT / window.length
    x = (np.maximum(starts[places], window.begin) - window.begin) * scale
    width = (np.minimum(ends[places], window.end) - window.begin) * scale - x
    return _Found(row, places + row.first, x, width)


def _narrowest(found: Sequence[_Found], budget: int) -> int:
    """The least width in whole pixels from which on all events together are not too many elements."""
    widths = np.concatenate([one.width for one in found]) if found else np.empty(0)
    narrowest = 1
    while True:
        drawn = widths[widths >= narrowest]
        if _A_BOX * len(drawn) + _A_LABEL * int((drawn >= _LABELLED).sum()) <= budget:
            return narrowest
        narrowest *= 2


def _strip(events: Events, found: _Found, edges: Numbers, alone: tuple[int, int | None], y: int) -> Strip:
    """A row; `alone` says which events are drawn one by one: from a width on, and the one at a place."""
    narrowest, mark = alone
    wide = found.width >= narrowest
    if mark is not None:
        wide |= found.places == mark
    columns = (found.places[wide].tolist(), found.x[wide].tolist(), found.width[wide].tolist())
    boxes = [_box(place, x, width) for place, x, width in zip(*columns, strict=True)]
    narrow = found.places[~wide]
    return Strip(found.row, y, boxes, _dense(events, narrow, edges, y) if len(narrow) else "", len(narrow))


def _box(place: int, x: float, width: float) -> Box:
    room = int((width - 8) / _CHARACTER) if width >= _LABELLED else 0
    return Box(place, round(LEFT + x, 2), round(max(0.5, width - 0.5), 2), room)


def _dense(events: Events, places: Numbers, edges: Numbers, y: int) -> str:
    """An area of steps: where events are it is at least a pixel high, and at most as high as a box."""
    bins = binned(events.starts[places], events.ends[places], edges)
    share = np.minimum(1.0, bins.covered / np.maximum(1, np.diff(edges)))
    occupied = (bins.counts > 0) | (bins.covered > 0)
    heights = np.where(occupied, np.maximum(1, np.rint(share * _BOX)), 0).astype(np.int64)
    changes = np.flatnonzero(np.diff(heights, prepend=0, append=0))
    levels = np.append(heights, 0)[changes].tolist()
    bottom = y + _BOX
    steps = "".join(f"H{LEFT + x}V{bottom - level}" for x, level in zip(changes.tolist(), levels, strict=True))
    return f"M{LEFT} {bottom}{steps}Z"


def _headings(rows: Sequence[Row]) -> Iterator[Heading]:
    above: Row | None = None
    for row, y in zip(rows, _heights(rows), strict=True):
        if above is None or _belongs(above.lane) != _belongs(row.lane):
            yield Heading(y - 7, row.lane)
        above = row


def _belongs(lane: Lane) -> tuple[bool, int | None, int | None]:
    """Equal for lanes that stand under one heading: those of a GPU, and those of a process's threads."""
    return lane.device is None, lane.process, lane.device


def _heights(rows: Sequence[Row]) -> list[int]:
    """The upper edge of each row."""
    found, y = [], _TOP
    above: Row | None = None
    for row in rows:
        if above is None or _belongs(above.lane) != _belongs(row.lane):
            y += _HEADING
        elif above.lane != row.lane:
            y += _BETWEEN
        found.append(y)
        y += _ROW
        above = row
    return found


def _bottom(rows: Sequence[Row]) -> int:
    return (_heights(rows)[-1] if rows else _TOP) + _ROW + 8
