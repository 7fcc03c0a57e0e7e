"""Everything a trace holds in one stream ordered by time: what ran on GPUs, API calls, ranges and marks."""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING

from proctor.rows import UserError
from proctor.trace.model import LATEST
from proctor.trace.timeline.events import KINDS, Event, Kind, Reader, Selection
from proctor.trace.views import MARK, PUSH_POP, START_END

if TYPE_CHECKING:
    from proctor.trace.trace import Trace

__all__ = ["KINDS", "Event", "Kind", "origin", "parse_kinds", "parse_time", "timeline"]

_UNITS = {"": 1, "ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_TIME = re.compile(r"((?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?|\.\d+)\s*([a-zµ]*)")
_IN_WINDOW = ("kernels", "copies", "memsets", "syncs", "graphs", "calls")
"""Views that `Trace.window` covers."""


def timeline(
    trace: Trace,
    *,
    kinds: Collection[Kind] | None = None,
    since: int | None = None,
    until: int | None = None,
    name: str | None = None,
    device: int | None = None,
    process: int | None = None,
) -> Iterator[Event]:
    """The events of a trace ordered by start, the longer first among those that start together.

    Memory is bounded: each table is read in slices of time (see `proctor.trace.timeline.order`).

    Args:
        trace: the trace.
        kinds: which kinds of events; all of them if None.
        since: time on the trace's own clock, ns: only events of which some part lies at or after it.
        until: only events that start before this time, ns.
        name: only events whose name contains this text, whatever the case.
        device: only what ran on the GPU with this number; CPU events have none and are left out.
        process: only events of the process with this operating system's process id.

    Raises:
        UserError: the file is damaged where it was read.
    """
    selection = Selection(since, until, device, process)
    reader = Reader(trace)
    streams = [reader.events(kind, selection) for kind in KINDS if kinds is None or kind in kinds]
    events: Iterator[Event] = heapq.merge(*streams, key=_by_time)
    if name is None:
        return events
    wanted = name.casefold()
    return (event for event in events if wanted in event.name.casefold())


def origin(trace: Trace) -> int:
    """When the first event of the trace begins, on the trace's own clock, ns; 0 in an empty trace.

    Times that are shown to people, and those they give, count from here.
    """
    found = [trace.window[0]] if any(trace.has(view) for view in _IN_WINDOW) else []
    ranges = f"kind IN ({MARK}, {PUSH_POP}, {START_END})"  # rows that name a domain or a thread have no time
    for view, where in (("annotations", ranges), ("os_calls", "1")):
        start = trace.one(f"SELECT min(start) FROM {view} WHERE {where}")
        found += [] if start is None else [int(start)]
    return min(found, default=0)


def parse_time(text: str) -> int:
    """A span of time in nanoseconds: ``12345`` (ns), ``800us``, ``1.5ms``, ``2s``, and ``1,234.5ms`` as tables have it.

    Raises:
        UserError: it is none.
    """
    match = _TIME.fullmatch(text.strip())
    time = None if match is None or match[2] not in _UNITS else Decimal(match[1].replace(",", "")) * _UNITS[match[2]]
    if time is None or time != int(time) or time >= LATEST:
        raise UserError(f"{text!r} is no time", fix="write 12345 (nanoseconds), 800us, 1.5ms or 2s")
    return int(time)


def parse_kinds(text: str | None) -> list[Kind] | None:
    """Kinds of events from a list with commas; None for all.

    Raises:
        UserError: one of them is no kind.
    """
    if text is None:
        return None
    words = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [word for word in words if word not in KINDS]
    if unknown or not words:
        raise UserError(f"{', '.join(unknown) or repr(text)}: no such kind of event", fix=f"one of {', '.join(KINDS)}")
    return [Kind(word) for word in words]


def _by_time(event: Event) -> tuple[int, float]:
    return event.start, float("-inf") if event.end is None else -event.end
