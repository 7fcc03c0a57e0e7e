"""``proctor trace timeline``: everything in one ordered view."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from proctor.cli.output import json_line, stdout, table
from proctor.cli.run import Json
from proctor.cli.trace.heading import TraceFile, opened
from proctor.cli.trace.scope import window_of
from proctor.rows import UserError

if TYPE_CHECKING:
    from proctor.trace.timeline.timeline import Event

_NAME_WIDTH = 70
_MOST = (1 << 31) - 1
Since = Annotated[
    str | None,
    typer.Option("--since", help="From this time after the first event: 12345 (ns), 800us, 1.5ms, 2s."),
]
Until = Annotated[str | None, typer.Option("--until", help="Up to this time after the first event.")]
Name = Annotated[str | None, typer.Option("--name", help="Only events whose name contains this.")]
Device = Annotated[int | None, typer.Option("--device", min=0, max=_MOST, help="Only what ran on this GPU.")]
Pid = Annotated[int | None, typer.Option("--pid", min=0, max=_MOST, help="Only events of this process.")]
Kinds = Annotated[
    str | None,
    typer.Option("--kind", help="Kinds, with commas: kernel,copy,memset,sync,graph,range,mark,call,os_call."),
]


def timeline(
    file: TraceFile,
    since: Since = None,
    until: Until = None,
    name: Name = None,
    device: Device = None,
    pid: Pid = None,
    kind: Kinds = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=_MOST, help="How many events to show.")] = 100,
    json: Json = False,
) -> None:
    """Show kernels, copies, memsets, syncs, graphs, ranges and API calls in the order in which they began.

    Times are relative to the first event of the trace; the JSON has the trace's own clock as well.
    """
    from proctor.trace.timeline.timeline import origin, parse_kinds
    from proctor.trace.timeline.timeline import timeline as read_timeline
    from proctor.trace.work.scope import check_device

    kinds = parse_kinds(kind)
    window = window_of(since, until)
    with opened(file) as trace:
        check_device(trace, device)
        zero = origin(trace)
        begin, end = (None if time is None else zero + time for time in window)
        events = read_timeline(trace, kinds=kinds, since=begin, until=end, name=name, device=device, process=pid)
        shown = list(islice(events, limit))
        more = next(events, None) is not None
    if not shown:
        raise UserError("no event fits what was asked for", where=str(file), fix="leave out an option")
    if json:
        for event in shown:
            json_line(
                "event",
                at_ns=event.start - zero,
                duration_ns=None if event.end is None else event.end - event.start,
                **event._asdict(),
            )
        json_line("timeline", events=len(shown), more=more, origin_ns=zero)
        return
    columns = ["at ms", "took us", "kind", "where", "name", "bytes", "detail"]
    stdout.print(table(columns, [_row(event, zero) for event in shown]))
    stdout.say(f"times are milliseconds after the first event, at {zero:,} ns of the trace's clock")
    if more:
        stdout.say("there are more events: --limit, --since")


def _row(event: Event, zero: int) -> tuple[object, ...]:
    from proctor.trace.model import pid_of, tid_of
    from proctor.trace.names.normal import short_name
    from proctor.trace.nvtx.paths import plain

    if event.device is not None:
        where = f"pid {pid_of(event.process or 0)} GPU {event.device} context {event.context} stream {event.stream}"
    else:
        where = f"pid {pid_of(event.process or 0)} thread {tid_of(event.thread or 0)}"
    took = "open" if event.end is None else f"{(event.end - event.start) / 1e3:,.3f}"
    kernel = str(event.kind) == "kernel"
    name = short_name(event.name, _NAME_WIDTH) if kernel else plain(event.name)
    name = name if len(name) <= _NAME_WIDTH else name[: _NAME_WIDTH - 1] + "…"
    size = "" if event.bytes is None else f"{event.bytes:,}"
    return f"{(event.start - zero) / 1e6:,.6f}", took, str(event.kind), where, name, size, event.detail
