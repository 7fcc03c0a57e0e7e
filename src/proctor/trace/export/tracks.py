"""Which track of a picture an event is drawn on, so that none hides or seems to contain another.

A stream is told by process, device, context and stream. Viewers read overlap on one track as nesting: what overlaps on
a GPU's stream goes to further lanes of it, and so do ranges of a thread that overlap without nesting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from proctor.trace.model import pid_of, tid_of
from proctor.trace.timeline.timeline import Event, Kind

if TYPE_CHECKING:
    from proctor.trace.trace import Trace

_FOREVER = (1 << 63) - 1
_GROUPS = {Kind.SYNC: "syncs", Kind.GRAPH: "graphs", Kind.OS_CALL: "OS calls"}
"""Kinds that lie beside the others on a track of their own: waiting is no work, and a graph contains its kernels."""

_ORDER = ("", *_GROUPS.values())
NO_STREAM = 0xFFFFFFFF
"""``CUPTI_SYNCHRONIZATION_INVALID_VALUE``: a synchronisation that is of no one stream, such as a whole context's."""


class Track(NamedTuple):
    """One lane of a stream or thread.

    Attributes:
        number: counts the tracks of a trace from 1.
        order: sorts tracks: GPUs before threads, streams and threads by their numbers.
        process: ``globalPid``; None where the trace does not say.
        device: number of the GPU; None for threads.
        name: what to call it: ``context 1, stream 7``, ``thread 1234 python``.
        lane: counts from 0.
    """

    number: int
    order: tuple[int, ...]
    process: int | None
    device: int | None
    name: str
    lane: int


class _Lane:
    __slots__ = ("ends", "track")

    def __init__(self, track: Track) -> None:
        self.track = track
        self.ends: list[int] = []


class Tracks:
    """Gives each event its track; events must come in order of their starts, the longer first."""

    def __init__(self, trace: Trace) -> None:
        self.all: list[Track] = []
        self._lanes: dict[tuple[object, ...], list[_Lane]] = {}
        ids = dict(trace.rows("SELECT thread, name FROM threads WHERE name IS NOT NULL"))
        texts = trace.text(ids.values())
        self._threads = {thread: texts[name] for thread, name in ids.items()}

    def of(self, event: Event) -> Track:
        """The first lane of the event's stream or thread on which it neither overlaps nor crosses another."""
        return self.place(event)[0]

    def place(self, event: Event) -> tuple[Track, int]:
        """The lane as from `of`, and how many events of that lane the event lies within."""
        if event.device is not None:
            key: tuple[object, ...] = (event.process, event.device, event.context, event.stream, _group(event))
        else:
            key = (event.process, event.thread, _group(event))
        lanes = self._lanes.setdefault(key, [])
        end = _FOREVER if event.end is None else max(event.end, event.start)
        lane = next((lane for lane in lanes if _fits(lane, event, end)), None)
        if lane is None:
            lane = _Lane(self._track(event, len(lanes)))
            lanes.append(lane)
        depth = len(lane.ends)
        if event.kind is not Kind.MARK:
            lane.ends.append(end)
        return lane.track, depth

    def _track(self, event: Event, lane: int) -> Track:
        group = _group(event)
        if event.device is not None:
            stream = "no one stream" if event.stream == NO_STREAM else f"stream {event.stream}"
            name = f"context {event.context}, {stream}"
            place = (0, event.process or 0, event.device, event.context or 0, event.stream or 0)
        elif event.thread is None:
            name, place = "no thread", (1, event.process or 0, 0, 0, 0)
        else:
            known = self._threads.get(event.thread, "")
            name = known if known.startswith("thread ") else f"thread {tid_of(event.thread)} {known}".rstrip()
            place = (1, event.process or 0, 0, 0, event.thread)
        order = (*place, _ORDER.index(group), lane)
        name = f"{name}, {group}" if group else name
        self.all.append(Track(len(self.all) + 1, order, event.process, event.device, name, lane))
        return self.all[-1]


def process_name(trace: Trace, process: int | None) -> str:
    """What to call a process: ``python (pid 144)``."""
    if process is None:
        return "no process"
    known = next((each.name for each in trace.processes if each.process == process), "")
    return f"{known} (pid {pid_of(process)})".strip() if known else f"pid {pid_of(process)}"


def _group(event: Event) -> str:
    return _GROUPS.get(event.kind, "")


def _fits(lane: _Lane, event: Event, end: int) -> bool:
    ends = lane.ends
    while ends and ends[-1] <= event.start:
        ends.pop()
    if not ends or event.kind is Kind.MARK:
        return True
    return event.device is None and end <= ends[-1]
