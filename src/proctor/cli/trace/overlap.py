"""``proctor trace overlap``: compute against communication and copies, what waits, antipatterns of transfers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from proctor.cli.output import escaped, json_line, stdout, table
from proctor.cli.run import Json
from proctor.cli.trace.heading import TraceFile, opened
from proctor.cli.trace.scope import ms, percent, scope_of
from proctor.cli.trace.timeline import Device, Since, Until

if TYPE_CHECKING:
    from proctor.trace.overlap.overlap import Overlap

_COLOURS = {"found": "yellow", "not found": "green"}


def overlap(
    file: TraceFile, since: Since = None, until: Until = None, device: Device = None, json: Json = False
) -> None:
    """Show what of compute, communication and copies ran at once, what waited, and which antipatterns that shows.

    Times are unions of intervals over a GPU's streams. Exposed is what ran while no kernel computed on that GPU.
    """
    from proctor.trace.overlap.overlap import overlap as measure

    with opened(file) as trace:
        found = measure(trace, scope_of(trace, since, until, device))
    if json:
        for part in ("devices", "waits", "syncs", "findings"):
            for each in getattr(found, part):
                json_line(_EVENTS[part], **msgspec.to_builtins(each))
        json_line("overlap", pageable=msgspec.to_builtins(found.pageable), devices=len(found.devices))
        return
    _show_devices(found)
    _show_streams(found)
    _show_waits(found)
    _show_findings(found)


_EVENTS = {"devices": "device", "waits": "wait", "syncs": "sync", "findings": "finding"}


def _show_devices(found: Overlap) -> None:
    kinds = ("busy", "compute", "communication", "copies", "local_copies", "memsets", "graphs")
    rows = [(f"device {each.device}", *(ms(getattr(each, kind)) for kind in kinds)) for each in found.devices]
    stdout.print(table(["ms", *(kind.replace("_", " ") for kind in kinds)], rows))
    rows = [
        (
            f"device {each.device}",
            ms(each.compute_and_communication),
            ms(each.exposed_communication),
            _of(each.exposed_communication, each.communication),
            ms(each.compute_and_copies),
            ms(each.exposed_copies),
            _of(each.exposed_copies, each.copies),
        )
        for each in found.devices
    ]
    columns = ["ms", "with communication", "exposed", "share", "with copies", "exposed copies", "share of copies"]
    stdout.print(table(columns, rows, title="compute at once with"))


def _show_streams(found: Overlap) -> None:
    rows = [
        (
            f"device {stream.stream.device}, stream {stream.stream.stream}, pid {stream.stream.pid}",
            ", ".join(
                f"{kind.replace('_', ' ')} {ms(time)} ms x{stream.count[kind]:,}" for kind, time in stream.time.items()
            ),
        )
        for device in found.devices
        for stream in device.streams
    ]
    stdout.print(table(["stream", "what it ran"], rows))


def _show_waits(found: Overlap) -> None:
    rows = [(each.name, each.kind, each.calls, ms(each.total), ms(each.longest)) for each in found.waits]
    if rows:
        stdout.print(table(["the host waited in", "kind", "calls", "total ms", "longest ms"], rows))
    if found.syncs:
        stdout.print(
            table(["synchronisation", "rows", "total ms"], [(s.kind, s.rows, ms(s.total)) for s in found.syncs])
        )
        stdout.say("synchronisations are waiting, as the tracer saw it; they are in no time of work")
    copies = found.pageable
    if copies.known:
        stdout.say(f"pageable copies: {copies.calls:,}, {copies.bytes:,} bytes, {ms(copies.total)} ms")
    else:
        stdout.say("pageable copies: the trace does not say")


def _show_findings(found: Overlap) -> None:
    """Those found first, then those that are not; what no trace can show is one line of names."""
    from proctor.trace.overlap.antipatterns import Verdict

    for verdict in (Verdict.FOUND, Verdict.NOT_FOUND):
        for finding in (each for each in found.findings if each.verdict is verdict):
            stdout.print(
                f"[{_COLOURS[verdict]}]{verdict}[/]: {finding.name}: {escaped(finding.evidence)}", soft_wrap=True
            )
    unseen = [finding.name for finding in found.findings if finding.verdict is Verdict.UNSEEN]
    if unseen:
        stdout.print(f"[dim]cannot be seen in this trace (--json says why)[/]: {', '.join(unseen)}", soft_wrap=True)


def _of(part: int, whole: int) -> str:
    return percent(part / whole) if whole else "-"
