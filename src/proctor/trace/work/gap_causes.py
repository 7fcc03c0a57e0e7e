"""Why a GPU had nothing to do: what its processes did on the CPU during a gap, and which cause that speaks for.

The rules, in their order, on a gap and the API call that launched the work after it:

1. The trace has no such call: *unknown*.
2. The call itself ran for more than `LATENCY_NS` of the gap and for at least half of it: *in the launching call*. It is
   the call that takes long (a lock, memory being pinned, a full queue), not the way from it to the GPU.
3. The call began before the gap. The gap is then up to `LATENCY_NS` long: *launch latency*. Longer: *waiting after the
   launch*, for an event, another stream or another GPU; the trace does not say for which.
4. From the beginning of that call to the end of the gap it is at least as long as from the gap's beginning to the call:
   *launch latency*.
5. The launching thread was in a call that waits for the GPU (a synchronisation, a blocking copy) when the gap began:
   *host synchronisation*. It could not prepare the next launch while it waited.
6. Otherwise *host not launching*, with the call, the range or the OS call that took most of the time.
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
    IN_CALL = "in the launching call"
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
        range: the innermost range of the launching thread that was open for at least half of the gap; empty: none was.
        launched_at: when the call that launched the next work began, on the trace's own clock; None if unknown.
    """

    calls: tuple[Part, ...] = ()
    ranges: tuple[Part, ...] = ()
    os_calls: tuple[Part, ...] = ()
    range: str = ""
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
            range=_innermost(ranges[number], launch, span.end - span.start),
            launched_at=launch.start if launch else None,
        )
        found.append(Explained(*_cause(span, launch, calls[number], meanwhile), meanwhile))
    return found


def _cause(span: Span, launch: Call | None, calls: Sequence[Overlap], meanwhile: Meanwhile) -> tuple[Cause, str]:
    if launch is None:
        return Cause.UNKNOWN, "the trace has no call that launched the work after it"
    if (inside := _in_call(span, launch)) is not None:
        return Cause.IN_CALL, inside
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


def _innermost(ranges: Sequence[Overlap], launch: Call | None, gap: int) -> str:
    """Of nested ranges the one that began last says most: a whole step is open in every gap."""
    fitting = [each for each in ranges if 2 * each.length >= gap and (not launch or each.thread == launch.thread)]
    return max(fitting, key=lambda each: (each.start, -each.length)).name if fitting else ""


def _in_call(span: Span, launch: Call) -> str | None:
    """The evidence for rule 2; None where it does not fit."""
    inside = min(launch.end, span.end) - max(launch.start, span.start)
    if inside <= LATENCY_NS or 2 * inside < span.end - span.start:
        return None
    if launch.start > span.start:
        began = f"began {_us(launch.start - span.start)} into the gap"
    else:
        began = f"began {_us(span.start - launch.start)} before the gap"
    lasted = _us(launch.end - launch.start)
    of_it = "" if inside == launch.end - launch.start else f", {_us(inside)} of it in the gap"
    return f"{launch.name} {began} and itself lasted {lasted}{of_it}"


def _most(meanwhile: Meanwhile, host: int) -> str:
    """What took most of the time that the host let pass."""
    told = []
    for how, parts in (("in", meanwhile.calls), ("in the OS call", meanwhile.os_calls)):
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
