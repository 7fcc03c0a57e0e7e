"""The eight published antipatterns of GPU transfers, and a ninth: which of them a trace shows, and by what.

A trace shows what ran when and where. It does not show what should have been waited for, how many buffers a program
has, or what it would have sent; where that is what matters, the answer is that it cannot be seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from proctor.trace.names.normal import short_name
from proctor.trace.overlap.alternation import ENOUGH, Alternation
from proctor.trace.overlap.lanes import COMMUNICATION, COPIES, Lane
from proctor.trace.overlap.null_streams import null_streams
from proctor.trace.overlap.waits import SyncRows, Wait
from proctor.trace.work.api_names import Api
from proctor.trace.work.device_work import pid_or_unknown

if TYPE_CHECKING:
    from proctor.trace.trace import Trace

NO_OVERLAP_SHARE = 0.95
"""Transfers of which so much runs while nothing computes overlap with nothing."""


class Verdict(StrEnum):
    """What a trace says of an antipattern."""

    FOUND = "found"
    NOT_FOUND = "not found"
    UNSEEN = "cannot be seen"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One antipattern.

    Attributes:
        name: which.
        verdict: whether the trace shows it.
        evidence: by what, or why it cannot be seen.
        figures: the numbers in the evidence; times in ns.
    """

    name: str
    verdict: Verdict
    evidence: str
    figures: dict[str, int] = {}


_UNSEEN = {
    "wrong stream synchronised": "the trace has what was waited for, not what should have been",
    "missing synchronisation": "a race leaves no mark in times; only the data would show it",
    "too many buffers": "the trace has no buffers, only the kernels and copies that use them",
    "order mismatch": "the trace has no contents of transfers, so not whether both sides agree on their order",
    "skipped collective": "a rank that never joins hangs the others; in a capture that ends, a cut window looks alike",
}


def judge(trace: Trace, lanes: Sequence[Lane], waits: Sequence[Wait], syncs: Sequence[SyncRows]) -> tuple[Finding, ...]:
    """What the trace says of each antipattern.

    Args:
        trace: the trace, for which streams are null streams.
        lanes: what ran on each GPU.
        waits: calls in which the host waited.
        syncs: synchronisations as the tracer saw them.
    """

    def unseen(name: str) -> Finding:
        return Finding(name=name, verdict=Verdict.UNSEEN, evidence=_UNSEEN[name])

    return (
        unseen("wrong stream synchronised"),
        unseen("missing synchronisation"),
        _device_sync(trace, waits, syncs),
        _single_buffer(lanes),
        unseen("too many buffers"),
        unseen("order mismatch"),
        unseen("skipped collective"),
        _default_stream(trace, lanes),
        _no_overlap(lanes),
    )


def _device_sync(trace: Trace, waits: Sequence[Wait], syncs: Sequence[SyncRows]) -> Finding:
    name = "device-wide synchronisation"
    whole = [wait for wait in waits if wait.kind == Api.DEVICE_SYNC]
    calls, total = sum(wait.calls for wait in whole), sum(wait.total for wait in whole)
    rows = sum(each.rows for each in syncs if each.kind == "context")
    figures = {"calls": calls, "total": total, "context_syncs": rows}
    if calls or rows:
        by = ", ".join(f"{wait.name} x{wait.calls:,}" for wait in whole) or "no call of that name is in the trace"
        evidence = f"{by}, {total / 1e6:,.3f} ms of waiting; {rows:,} context synchronisations"
        return Finding(name=name, verdict=Verdict.FOUND, evidence=evidence, figures=figures)
    if not trace.has("calls") and not trace.has("syncs"):
        return Finding(name=name, verdict=Verdict.UNSEEN, evidence="the trace has neither API calls nor syncs")
    evidence = "no call of cudaDeviceSynchronize or the like, no context synchronisation"
    return Finding(name=name, verdict=Verdict.NOT_FOUND, evidence=evidence, figures=figures)


def _single_buffer(lanes: Sequence[Lane]) -> Finding:
    findings = [_takes_turns(each) for lane in lanes for each in (lane.communication, lane.transfers)]
    for verdict in (Verdict.FOUND, Verdict.NOT_FOUND):
        if chosen := [finding for finding in findings if finding.verdict is verdict]:
            return max(chosen, key=lambda finding: finding.figures.get("transfers", 0))
    return max(findings, key=lambda finding: finding.figures.get("transfers", 0))


def _takes_turns(one: Alternation) -> Finding:
    figures: dict[str, int] = {
        "transfers": one.transfers, "at_once": one.at_once, "without_packing": one.unpacked,
    }  # fmt: skip

    def say(verdict: Verdict, evidence: str) -> Finding:
        return Finding(name="single buffer", verdict=verdict, evidence=evidence, figures=figures)

    if one.transfers < ENOUGH:
        return say(Verdict.UNSEEN, f"{one.transfers:,} transfers on a GPU show no pattern ({ENOUGH} would)")
    what = f"{one.transfers:,} x {short_name(one.name, 60)}"
    if one.at_once:
        return say(Verdict.NOT_FOUND, f"packing and {what} ran at once {one.at_once:,} times")
    if one.unpacked or not one.fillers:
        return say(Verdict.NOT_FOUND, f"no kernel or copy packs between all of {what}")
    apart = [(name, streams) for name, streams in one.fillers if not streams & one.streams]
    if not apart:
        return say(Verdict.UNSEEN, f"{what} and what packs are on the same stream, which lets them take turns anyway")
    name, streams = apart[0]
    return say(
        Verdict.FOUND,
        f"{short_name(name, 60)} (stream {_streams(streams)}) and {what} (stream {_streams(one.streams)}) take turns "
        "without exception and never run at once, though on streams of their own: as with one buffer, or a dependency",
    )


def _default_stream(trace: Trace, lanes: Sequence[Lane]) -> Finding:
    name = "default stream"
    known = null_streams(trace)
    on_null = elsewhere = unknown = 0
    streams: set[tuple[int, ...]] = set()
    for lane in lanes:
        for place, (_, counts) in lane.by_stream.items():
            transfers = counts[COMMUNICATION] + counts[COPIES]
            null = known.is_null(pid_or_unknown(place[0]), place[2], place[3])
            on_null += transfers * (null is True)
            elsewhere += transfers * (null is False)
            unknown += transfers * (null is None)
            if null and transfers:
                streams.add(place)
    figures = {"on_null_stream": on_null, "elsewhere": elsewhere, "unknown": unknown}
    if on_null:
        evidence = f"{on_null:,} communication kernels and copies on the null stream ({_streams(streams)})"
        return Finding(name=name, verdict=Verdict.FOUND, evidence=evidence, figures=figures)
    if unknown:
        evidence = f"the trace does not say whether the streams of {unknown:,} transfers are null streams"
        return Finding(name=name, verdict=Verdict.UNSEEN, evidence=evidence, figures=figures)
    if not elsewhere:
        return Finding(name=name, verdict=Verdict.NOT_FOUND, evidence="no transfers", figures=figures)
    evidence = f"all {elsewhere:,} communication kernels and copies are on streams of their own making"
    return Finding(name=name, verdict=Verdict.NOT_FOUND, evidence=evidence, figures=figures)


def _no_overlap(lanes: Sequence[Lane]) -> Finding:
    transfers = exposed = count = 0
    for lane in lanes:
        time = lane.coverage.close()
        transfers += sum(spent for mask, spent in time.items() if mask & (1 << COMMUNICATION | 1 << COPIES))
        exposed += lane.exposed(time, COMMUNICATION, COPIES)
        count += sum(counts[COMMUNICATION] + counts[COPIES] for _, counts in lane.by_stream.values())
    figures = {"transfers": count, "time": transfers, "exposed": exposed}
    if count < ENOUGH:
        evidence = f"{count:,} transfers show no pattern ({ENOUGH} would)"
        return Finding(name="no overlap", verdict=Verdict.UNSEEN, evidence=evidence, figures=figures)
    share = exposed / transfers if transfers else 0.0
    evidence = (
        f"{share:.1%} of {transfers / 1e6:,.3f} ms of communication and of copies beyond the device ran while nothing "
        "computed on that GPU"
    )
    verdict = Verdict.FOUND if share >= NO_OVERLAP_SHARE else Verdict.NOT_FOUND
    return Finding(name="no overlap", verdict=verdict, evidence=evidence, figures=figures)


def _streams(places: set[tuple[int, ...]]) -> str:
    return ", ".join(str(stream) for stream in sorted({place[3] for place in places}))
