"""Walks ranges and API calls side by side in order of time: what is open on a thread when a call begins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from proctor.trace.nvtx.paths import OUTSIDE, Paths, Texts
from proctor.trace.timeline.order import Query, in_order
from proctor.trace.views import PUSH_POP, START_END

if TYPE_CHECKING:
    from proctor.trace.trace import Trace

_FOREVER = (1 << 63) - 1
_BEGIN_CAPTURE = re.compile(r"cu(?:da)?StreamBeginCapture")
_END_CAPTURE = re.compile(r"cu(?:da)?StreamEndCapture")
_LAUNCH = re.compile(r"(?:cu(?:da)?|hip(?:Ext|Module)?)Launch")
_GRAPH_LAUNCH = re.compile(r"(?:cu(?:da)?|hip)GraphLaunch")


class Tally:
    """What happened in the ranges of one path in one process.

    Attributes:
        count: ranges opened.
        open: of those, ranges that the trace does not see end.
        cpu_ns: how long they were open, those without an end until the trace's last moment.
        calls: API calls directly within (not in a range inside).
        launches: of those, launches of single kernels.
        captured: of those, launches made while the thread recorded a CUDA graph: they run when the graph is launched.
        graph_launches: of the calls, launches of whole CUDA graphs.
    """

    __slots__ = ("calls", "captured", "count", "cpu_ns", "graph_launches", "launches", "open")

    def __init__(self) -> None:
        self.count = self.open = self.cpu_ns = 0
        self.calls = self.launches = self.captured = self.graph_launches = 0


class Call(NamedTuple):
    """An API call and the ranges it lies in."""

    start: int
    process: int
    thread: int
    correlation: int
    path: int


class _Open(NamedTuple):
    end: int
    lowest: int
    """The first end of this range and those below it on the stack."""
    path: int
    name: str
    domain: str
    start: int


class Walk:
    """One walk over a trace. Its `paths` and `tallies` are complete once `calls` is used up."""

    def __init__(self, trace: Trace, *, exact: bool = False) -> None:
        self.paths = Paths()
        self.tallies: dict[tuple[int, int], Tally] = {}
        self._trace = trace
        self._texts = Texts(trace, exact=exact)
        self._stacks: dict[int, list[_Open]] = {}
        self._capturing: set[int] = set()
        self._names = _NamesOfCalls(trace)

    def calls(self) -> Iterator[Call]:
        """Every API call in order of time, with the path of ranges open on its thread as it begins."""
        ranges = in_order(self._trace, _RANGES)
        calls = in_order(self._trace, _CALLS)
        call = next(calls, None)
        for row in ranges:
            while call is not None and call[0] < row[0]:
                yield self._called(call)
                call = next(calls, None)
            self._opened(row)
        while call is not None:
            yield self._called(call)
            call = next(calls, None)

    def _opened(self, row: tuple[Any, ...]) -> None:
        start, end, thread, process, kind, end_thread, text, text_id, domain_id = row
        name, domain = self._texts.of(text, text_id), self._texts.domain(process, domain_id)
        # The key of a whole process's stack is its own id, whose thread part is 0: no thread has it.
        across = kind == START_END and end_thread is not None and end_thread != thread
        stack = self._current(process if across else thread, start)
        until = _FOREVER if end is None else end
        parent = stack[-1].path if stack else OUTSIDE
        path = self.paths.child(parent, name, domain)
        tally = self._tally(process, path)
        tally.count += 1
        tally.open += end is None
        tally.cpu_ns += max(0, (max(start, self._trace.window[1]) if end is None else end) - start)
        if until > start:
            lowest = min(until, stack[-1].lowest) if stack else until
            stack.append(_Open(until, lowest, path, name, domain, start))

    def _called(self, row: tuple[Any, ...]) -> Call:
        start, thread, process, correlation, name = row
        stack = self._current(thread, start)
        path = stack[-1].path if stack else OUTSIDE
        whole = self._current(process, start) if process in self._stacks else None
        if whole:
            path = self._combined(whole, stack)
        tally = self._tally(process, path)
        tally.calls += 1
        self._count_launch(tally, thread, name)
        return Call(start, process, thread, correlation or 0, path)

    def _count_launch(self, tally: Tally, thread: int, name: int) -> None:
        kind = self._names.kind(name)
        if kind is _LAUNCH:
            tally.launches += 1
            tally.captured += thread in self._capturing
        elif kind is _GRAPH_LAUNCH:
            tally.graph_launches += 1
        elif kind is _BEGIN_CAPTURE:
            self._capturing.add(thread)
        elif kind is _END_CAPTURE:
            self._capturing.discard(thread)

    def _current(self, key: int, time: int) -> list[_Open]:
        """The stack of a thread (or process) with what has ended by `time` taken off."""
        stack = self._stacks.setdefault(key, [])
        while stack and stack[-1].end <= time:
            stack.pop()
        if stack and stack[-1].lowest <= time:  # ranges that overlap without nesting: one below ended first
            stack[:] = self._rebuilt([entry for entry in stack if entry.end > time])
        return stack

    def _rebuilt(self, entries: list[_Open]) -> list[_Open]:
        rebuilt: list[_Open] = []
        path, lowest = OUTSIDE, _FOREVER
        for entry in entries:
            path, lowest = self.paths.child(path, entry.name, entry.domain), min(lowest, entry.end)
            rebuilt.append(entry._replace(path=path, lowest=lowest))
        return rebuilt

    def _combined(self, whole: list[_Open], stack: list[_Open]) -> int:
        """The path of ranges of the process and of the thread together, in the order in which they were opened."""
        return self._rebuilt(sorted([*whole, *stack], key=lambda entry: entry.start))[-1].path

    def _tally(self, process: int, path: int) -> Tally:
        key = (process, path)
        if key not in self.tallies:
            self.tallies[key] = Tally()
        return self.tallies[key]


class _NamesOfCalls:
    """Which API calls launch or record, by the id of their name."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._kinds: dict[int, re.Pattern[str] | None] = {}

    def kind(self, name: int | None) -> re.Pattern[str] | None:
        if name is None:
            return None
        if name not in self._kinds:
            text = self._trace.text([name])[name]
            patterns = (_LAUNCH, _GRAPH_LAUNCH, _BEGIN_CAPTURE, _END_CAPTURE)
            self._kinds[name] = next((pattern for pattern in patterns if pattern.match(text)), None)
        return self._kinds[name]


_RANGES = Query(
    "annotations",
    (
        "v.start", 'v."end"', "v.thread", "v.process", "v.kind", "v.end_thread", "v.text", "v.text_id", "v.domain",
    ),
    where=f"v.kind IN ({PUSH_POP}, {START_END})",
)  # fmt: skip
_CALLS = Query("calls", ("v.start", "v.thread", "v.process", "v.correlation", "v.name"))
