"""Why a GPU had nothing to do: what its processes did on the CPU during a gap, and which cause that speaks for.

The rules, in their order, on a gap and the API call that launched the work after it:

1. The trace has no such call: *unknown*.
2. The call began before the gap. The gap is then up to `LATENCY_NS` long: *launch latency*. Longer: *waiting after the
   launch*, for an event, another stream or another GPU; the trace does not say for which.
3. From the beginning of that call to the end of the gap it is at least as long as from the gap's beginning to the call:
   *launch latency*.
4. The launching thread was in a call that waits for the GPU (a synchronisation, a blocking copy) when the gap began:
   *host synchronisation*. It could not prepare the next launch while it waited.
5. Otherwise *host not launching*, with the call, the range or the OS call that took most of the time.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from proctor.trace.work.api_names import WAITS
from proctor.trace.work.gap_calls import Call, Overlap, launching_calls, overlapping

if TYPE_CHECKING:
    from proctor.trace.trace import Trace

LATENCY_NS = 20_000
"""A launch that takes longer than this to reach an idle GPU waits for something; a few microseconds are usual."""
_SHOWN = 5


class Cause(StrEnum):
    """Why a GPU had nothing to do, as far as the trace shows."""

    SYNC = "host synchronisation"
    HOST = "host not launching"
    LATENCY = "launch latency"
    WAITING = "waiting after the launch"
    UNKNOWN = "unknown"


class Span(NamedTuple):
    """A gap, as far as its cause depends on it; ns."""

    start: int
    end: int
    process: int
    """Of the work after it."""
    correlation: int | None
    """Of the work after it."""
    processes: Set[int]
    """All that use the GPU."""


class Part(msgspec.Struct, frozen=True):
    """A call, range or OS call of one name during a gap.

    Attributes:
        name: as in the trace.
        pid: whose it was.
        count: how many overlapped the gap.
        length: how much of the gap they cover, ns (a union of intervals for each thread, summed over threads).
    """

    name: str
    pid: int
    count: int
    length: int


class Meanwhile(msgspec.Struct, frozen=True, kw_only=True):
    """What the processes that use a GPU did on the CPU during a gap; the longest first, at most five of each.

    Attributes:
        calls: of the CUDA API.
        ranges: NVTX (or PyTorch) ranges that were open.
        os_calls: of the operating system, where the capture has them.
        launched_at: when the call that launched the next work began, on the trace's own clock; None if unknown.
    """

    calls: tuple[Part, ...] = ()
    ranges: tuple[Part, ...] = ()
    os_calls: tuple[Part, ...] = ()
    launched_at: int | None = None


class Explained(NamedTuple):
    """A cause, the evidence in words, and what the CPU did."""

    cause: Cause
    why: str
    meanwhile: Meanwhile


def explain(trace: Trace, spans: Sequence[Span]) -> list[Explained]:
    """The cause of each gap, from one pass over the API calls, one over the ranges and one over the OS calls."""
    launches = launching_calls(trace, {(span.process, span.correlation) for span in spans if span.correlation})
    calls, ranges, os_calls = (overlapping(trace, view, spans) for view in ("calls", "annotations", "os_calls"))
    found = []
    for number, span in enumerate(spans):
        launch = launches.get((span.process, span.correlation or 0))
        meanwhile = Meanwhile(
            calls=_parts(calls[number]),
            ranges=_parts(ranges[number]),
            os_calls=_parts(os_calls[number]),
            launched_at=launch.start if launch else None,
        )
        found.append(Explained(*_cause(span, launch, calls[number], meanwhile), meanwhile))
    return found


def _cause(span: Span, launch: Call | None, calls: Sequence[Overlap], meanwhile: Meanwhile) -> tuple[Cause, str]:
    if launch is None:
        return Cause.UNKNOWN, "the trace has no call that launched the work after it"
    if launch.start <= span.start:
        early = f"launched {_us(span.start - launch.start)} before the gap"
        if span.end - span.start <= LATENCY_NS:
            return Cause.LATENCY, early
        return Cause.WAITING, f"{early}: what it waited for is not in the trace"
    host, rest = launch.start - span.start, span.end - launch.start
    if rest >= host:
        return Cause.LATENCY, f"{launch.name} began {_us(host)} into the gap and took {_us(rest)} to reach the GPU"
    waits = [call for call in calls if call.kind in WAITS and call.thread == launch.thread]
    if open_ := next((call for call in waits if call.start <= span.start < call.end), None):
        after = max(0, launch.start - open_.end)
        return (
            Cause.SYNC,
            f"{open_.name} returned {_us(open_.end - span.start)} into the gap; launched {_us(after)} later",
        )
    return Cause.HOST, f"launched {_us(host)} into the gap; {_most(meanwhile, host)}"


def _most(meanwhile: Meanwhile, host: int) -> str:
    """What took most of the time that the host let pass."""
    told = []
    words = (("in", meanwhile.calls), ("in the OS call", meanwhile.os_calls), ("in the range", meanwhile.ranges))
    for how, parts in words:
        if parts and 2 * parts[0].length >= host:
            told.append(f"{how} {parts[0].name} for {_us(parts[0].length)}")
    if not any(2 * part.length >= host for part in meanwhile.calls[:1]):
        told.insert(0, "no one call of the CUDA API took half of that")
    return ", ".join(told)


def _parts(overlaps: Sequence[Overlap]) -> tuple[Part, ...]:
    """The overlaps by name, the longest first; of ranges that are open as long, the innermost, which began last."""
    found: dict[tuple[str, int], list[int]] = {}
    for each in overlaps:
        known = found.setdefault((each.name, each.pid), [0, 0, 0])
        known[0] += each.times
        known[1] += each.length
        known[2] = max(known[2], each.start)
    longest = sorted(found.items(), key=lambda item: (-item[1][1], -item[1][2], item[0]))
    return tuple(Part(name, pid, times, length) for (name, pid), (times, length, _) in longest[:_SHOWN])


def _us(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e3:,.1f} us"
