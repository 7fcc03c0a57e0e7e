"""Idle gaps: when no kernel, copy, memset or graph ran on a GPU, and what the CPU did meanwhile."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from proctor.trace.timeline.timeline import origin
from proctor.trace.work.device_work import (
    Device,
    Work,
    device_work,
    devices_of,
    pid_or_unknown,
    refuse_unseen_graphs,
    told,
)
from proctor.trace.work.gap_causes import Cause, Meanwhile, Span, explain
from proctor.trace.work.scope import WHOLE, Scope, nothing_in

if TYPE_CHECKING:
    from proctor.trace.trace import Trace


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """The work at one end of a gap.

    Attributes:
        name: a kernel's demangled name, or what else it was.
        pid: its process.
        stream: on which it ran.
        start, end: ns on the trace's own clock.
    """

    name: str
    pid: int
    stream: int
    start: int
    end: int


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which nothing ran on a GPU, between two pieces of work. Times are nanoseconds.

    Attributes:
        device: as the process of the work after it numbers the GPU.
        start, end: on the trace's own clock.
        length: `end` - `start`.
        before, after: the work whose end began it, and the work whose start ended it.
        cause: why the GPU had nothing to do, as far as the trace shows; the rules are in `gap_causes`.
        why: the evidence for `cause`, in words.
        meanwhile: what the processes that use the GPU did on the CPU during the gap.
    """

    device: int
    start: int
    end: int
    length: int
    before: Neighbour
    after: Neighbour
    cause: Cause
    why: str
    meanwhile: Meanwhile


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """How long a GPU did nothing. Times are nanoseconds.

    Attributes:
        device: as its process numbers it; the first number, where processes differ.
        pids: processes that used it.
        span: from the start of its first work to the end of its last.
        busy: time in it with a kernel, copy, memset or graph: a union of intervals.
        idle: the rest, the sum of all gaps.
        share: `idle` / `span`.
        gaps: how many.
        before_first: from the trace's first event to this GPU's first work; not idle time, since nothing was asked yet.
        after_last: from this GPU's last work to the trace's last event; not idle time either.
    """

    device: int
    pids: tuple[int, ...]
    span: int
    busy: int
    idle: int
    share: float
    gaps: int
    before_first: int
    after_last: int


class OfCause(msgspec.Struct, frozen=True):
    """The ranked gaps of one cause: how many, and their length in sum (ns)."""

    cause: Cause
    gaps: int
    length: int


class Gaps(msgspec.Struct, frozen=True, kw_only=True):
    """Idle time of every GPU.

    Attributes:
        devices: each GPU's idle time, all gaps counted.
        gaps: the longest gaps of all GPUs, longest first.
        causes: `gaps` by cause, the longest first; gaps that are not in `gaps` are in none.
        ranked: the length of `gaps` in sum; compare with the sum of `idle`.
    """

    devices: tuple[Idle, ...]
    gaps: tuple[Gap, ...]
    causes: tuple[OfCause, ...]
    ranked: int


def gaps(trace: Trace, scope: Scope = WHOLE, *, top: int = 5) -> Gaps:
    """Finds the idle gaps of each GPU in one pass in order of time, and explains the `top` longest.

    Raises:
        UserError: nothing ran on a GPU within `scope`, or graphs ran whose work the trace does not show, or the file
            is damaged.
    """
    refuse_unseen_graphs(trace, "idle time")
    device_of = devices_of(trace)
    lanes: dict[Device, _Lane] = {}
    longest: list[_Found] = []
    for number, work in enumerate(device_work(trace, scope)):
        device = device_of(work.process, work.device)
        if device not in lanes:
            lanes[device] = _Lane(work)
            continue
        begun = lanes[device].add(work)
        if begun is not None:
            found = _Found(work.start - begun.end, -number, begun, work, device)
            (heapq.heappush if len(longest) < top else heapq.heappushpop)(longest, found)
    if not lanes:
        raise nothing_in(trace, scope, "idle time")
    ranked = _explained(trace, sorted(longest, reverse=True), lanes)
    window = (origin(trace), trace.window[1]) if scope == WHOLE else None
    return Gaps(
        devices=tuple(lane.idle(window) for lane in lanes.values()),
        gaps=ranked,
        causes=_by_cause(ranked),
        ranked=sum(gap.length for gap in ranked),
    )


class _Found(NamedTuple):
    length: int
    order: int
    """Makes the earlier of two gaps of the same length the first, and no two entries equal."""
    before: Work
    after: Work
    device: Device


class _Lane:
    """What ran on one GPU so far."""

    def __init__(self, first: Work) -> None:
        self.first = self.last = first
        self.busy = max(0, first.end - first.start)
        self.gaps = 0
        self.processes = {first.process}

    def add(self, work: Work) -> Work | None:
        """Takes the next work; returns the work that ended last, if nothing ran between the two."""
        last = self.last
        self.processes.add(work.process)
        self.busy += max(0, work.end - max(work.start, last.end))
        if work.end > last.end:
            self.last = work
        if work.start <= last.end:
            return None
        self.gaps += 1
        return last

    def idle(self, window: tuple[int, int] | None) -> Idle:
        span = self.last.end - self.first.start
        return Idle(
            device=self.first.device,
            pids=tuple(sorted(pid_or_unknown(process) for process in self.processes)),
            span=span,
            busy=self.busy,
            idle=span - self.busy,
            share=(span - self.busy) / span if span else 0.0,
            gaps=self.gaps,
            before_first=max(0, self.first.start - window[0]) if window else 0,
            after_last=max(0, window[1] - self.last.end) if window else 0,
        )


def _explained(trace: Trace, found: list[_Found], lanes: dict[Device, _Lane]) -> tuple[Gap, ...]:
    spans = [
        Span(
            each.before.end, each.after.start, each.after.process, each.after.correlation, lanes[each.device].processes
        )
        for each in found
    ]
    names = told(trace, [work for each in found for work in (each.before, each.after)])
    return tuple(
        Gap(
            device=each.after.device,
            start=each.before.end,
            end=each.after.start,
            length=each.length,
            before=_neighbour(each.before, names),
            after=_neighbour(each.after, names),
            cause=cause,
            why=why,
            meanwhile=meanwhile,
        )
        for each, (cause, why, meanwhile) in zip(found, explain(trace, spans), strict=True)
    )


def _neighbour(work: Work, names: dict[Work, str]) -> Neighbour:
    pid = pid_or_unknown(work.process)
    return Neighbour(name=names[work], pid=pid, stream=work.stream, start=work.start, end=work.end)


def _by_cause(ranked: tuple[Gap, ...]) -> tuple[OfCause, ...]:
    found: dict[Cause, list[int]] = {}
    for gap in ranked:
        found.setdefault(gap.cause, []).append(gap.length)
    causes = [OfCause(cause, len(lengths), sum(lengths)) for cause, lengths in found.items()]
    return tuple(sorted(causes, key=lambda each: -each.length))
