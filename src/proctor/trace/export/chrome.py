"""The Trace Event Format, which Perfetto and chrome://tracing load.

Source: "Trace Event Format" (Google), and Perfetto's importer (src/trace_processor/importers/json): times are
microseconds, read to the nanosecond where they have three decimals; a flow starts within the slice that is open on its
track at its time, and ends in one with ``"bp": "e"``.
"""

from __future__ import annotations

import gzip
import io
import json
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from proctor.trace.export.tracks import Track, Tracks, process_name
from proctor.trace.model import pid_of
from proctor.trace.timeline.timeline import Event, Kind

if TYPE_CHECKING:
    from proctor.trace.trace import Trace

_PENDING = 100_000
"""Calls that are remembered until what they launched begins."""
_ARTIFICIAL = 10_000_000
"""Ids of what is no process or thread of the operating system: above any that Linux gives (2^22)."""


def write_chrome(trace: Trace, events: Iterator[Event], path: Path, zero: int, *, compress: bool = False) -> int:
    """Writes events as Trace Event Format, as JSON or gzipped; returns how many. Memory is bounded."""
    with ExitStack() as stack:
        file = stack.enter_context(path.open("wb"))
        raw = stack.enter_context(gzip.GzipFile("", "wb", 6, file, mtime=0)) if compress else file
        out = stack.enter_context(io.TextIOWrapper(raw, "utf-8", write_through=False))
        return _Writer(trace, out, zero).write(events)


class _Writer:
    def __init__(self, trace: Trace, out: TextIO, zero: int) -> None:
        self._trace = trace
        self._out = out
        self._zero = zero
        self._tracks = Tracks(trace)
        self._places: dict[Track, tuple[int, int]] = {}
        self._pids: dict[tuple[int | None, int | None], int] = {}
        self._calls: OrderedDict[tuple[int | None, int], tuple[Event, Track]] = OrderedDict()
        self._flows = 0
        self._first = True

    def write(self, events: Iterator[Event]) -> int:
        self._out.write('{"displayTimeUnit":"ns","traceEvents":[')
        last, count = self._zero, 0
        unended: list[tuple[Event, Track]] = []
        for count, event in enumerate(events, start=1):  # noqa: B007 (the last count is the result)
            track = self._tracks.of(event)
            last = max(last, event.start if event.end is None else event.end)
            if event.end is None:
                unended.append((event, track))
                continue
            self._slice(event, track, event.end)
            self._flow(event, track)
        for event, track in unended:
            self._slice(event, track, last)
        self._name_tracks()
        self._out.write("\n]}\n")
        return count

    def _slice(self, event: Event, track: Track, end: int) -> None:
        pid, tid = self._place(track)
        args = {
            key: value
            for key, value in (
                ("detail", event.detail),
                ("bytes", event.bytes),
                ("correlation", event.correlation),
                ("unended", event.end is None),
            )
            if value not in (None, "", False)
        }
        line: dict[str, Any] = {"name": event.name, "cat": str(event.kind), "pid": pid, "tid": tid, "args": args}
        if event.kind is Kind.MARK:
            self._line({"ph": "i", "s": "t", **line}, event.start)
        else:
            self._line({"ph": "X", **line}, event.start, max(0, end - event.start))

    def _flow(self, event: Event, track: Track) -> None:
        """Remembers a call; for what it launched, writes an arrow from one to the other."""
        if not event.correlation:
            return
        key = (event.process, event.correlation)
        if event.kind is Kind.CALL:
            self._calls[key] = (event, track)
            if len(self._calls) > _PENDING:
                self._calls.popitem(last=False)
        elif event.device is not None and key in self._calls:
            call, from_track = self._calls[key]
            if call.start > event.start:
                return
            self._flows += 1
            for phase, at, place in (("s", call.start, from_track), ("f", event.start, track)):
                pid, tid = self._place(place)
                line = {"ph": phase, "id": self._flows, "name": "launch", "cat": "launch", "pid": pid, "tid": tid}
                self._line(line | ({"bp": "e"} if phase == "f" else {}), at)

    def _line(self, line: dict[str, Any], at: int, duration: int | None = None) -> None:
        # Times are put in as text: a float would round what has more than 15 digits.
        text = json.dumps(line, ensure_ascii=True, separators=(",", ":"))
        length = "" if duration is None else f',"dur":{_microseconds(duration)}'
        comma = "" if self._first else ","
        self._first = False
        self._out.write(f'{comma}\n{text[:-1]},"ts":{_microseconds(at - self._zero)}{length}}}')

    def _place(self, track: Track) -> tuple[int, int]:
        """The numbers of a track in the file: a GPU of a process is shown as a process of its own."""
        if track not in self._places:
            group = (track.process, track.device)
            if group not in self._pids:
                pid = pid_of(track.process or 0)
                taken = track.device is not None or pid == 0 or pid in self._pids.values()
                self._pids[group] = _ARTIFICIAL + len(self._pids) if taken else pid
            self._places[track] = (self._pids[group], 2 * _ARTIFICIAL + track.number)
        return self._places[track]

    def _name_tracks(self) -> None:
        groups = sorted(self._pids.items(), key=lambda each: (each[0][1] is None, each[0][0] or 0, each[0][1] or 0))
        for position, ((process, device), pid) in enumerate(groups):
            name = process_name(self._trace, process)
            if device is not None:
                gpu = self._trace.gpu(device, process)
                name = f"GPU {device} {gpu.name}".rstrip() + f" of {name}"
            self._metadata("process_name", pid, 0, name=name)
            self._metadata("process_sort_index", pid, 0, sort_index=position)
        for position, track in enumerate(sorted(self._tracks.all, key=lambda each: each.order)):
            pid, tid = self._place(track)
            lane = f" ({track.lane + 1})" if track.lane else ""
            self._metadata("thread_name", pid, tid, name=track.name + lane)
            self._metadata("thread_sort_index", pid, tid, sort_index=position)

    def _metadata(self, kind: str, pid: int, tid: int, **args: object) -> None:
        self._line({"ph": "M", "name": kind, "cat": "__metadata", "pid": pid, "tid": tid, "args": args}, self._zero)


def _microseconds(nanoseconds: int) -> str:
    """Exact, with the three decimals that readers round to."""
    whole, rest = divmod(abs(nanoseconds), 1000)
    return f"{'-' if nanoseconds < 0 else ''}{whole}.{rest:03d}"
