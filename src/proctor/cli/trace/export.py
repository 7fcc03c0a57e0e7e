"""``proctor trace export``: the timeline for other tools, or as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proctor.cli.output import counted, json_line, stdout
from proctor.cli.run import Json
from proctor.cli.trace.heading import TraceFile, opened
from proctor.cli.trace.scope import window_of
from proctor.cli.trace.timeline import Device, Kinds, Name, Pid, Since, Until


def export(
    file: TraceFile,
    out: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="What to write: .json, .json.gz (Perfetto), .parquet, .csv, .jsonl, .html."),
    ],
    since: Since = None,
    until: Until = None,
    name: Name = None,
    device: Device = None,
    pid: Pid = None,
    kind: Kinds = None,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it is there.")] = False,
    json: Json = False,
) -> None:
    """Write the timeline for Perfetto or chrome://tracing, as a table, or as a picture for a browser.

    What the capture says of its environment is never written. OUT appears whole or not at all.
    """
    from proctor.trace.export import export as export_trace
    from proctor.trace.timeline.timeline import origin, parse_kinds
    from proctor.trace.work.scope import check_device

    kinds = parse_kinds(kind)
    window = window_of(since, until)
    with opened(file) as trace:
        check_device(trace, device)
        zero = origin(trace) if since or until else 0
        begin, end = (None if time is None else zero + time for time in window)
        done = export_trace(
            trace, out, force=force, kinds=kinds, since=begin, until=end, name=name, device=device, process=pid
        )
    if json:
        json_line("export", path=str(out), events=done.events, bytes=done.bytes, format=done.format)
    else:
        stdout.say(f"{out}: {counted(done.events, 'event')}, {done.bytes / 1e6:,.1f} MB")
