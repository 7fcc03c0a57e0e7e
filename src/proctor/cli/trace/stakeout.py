"""``proctor trace stakeout``: one kernel, every launch."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from proctor.cli.output import counted, json_line, stdout, table, visible, write
from proctor.cli.run import Json
from proctor.cli.trace.heading import TraceFile, opened

if TYPE_CHECKING:
    from proctor.trace.launches.kernel_choice import AmbiguousKernelError
    from proctor.trace.launches.stakeout import Watch
    from proctor.trace.launches.stakeout_model import Launch

_AMBIGUOUS = 1
_CSV_AT_ONCE = 1000


def stakeout(
    file: TraceFile,
    kernel: Annotated[
        str, typer.Argument(metavar="KERNEL", help="#ID, the name, a part of it, or a regular expression.")
    ],
    all_: Annotated[bool, typer.Option("--all", help="All kernels that fit, together.")] = False,
    gpu: Annotated[str | None, typer.Option("--gpu", help="The GPU, e.g. H100, where the trace does not say.")] = None,
    launches: Annotated[bool, typer.Option("--launches", help="Every launch, one a line.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Every launch as CSV, and nothing else.")] = False,
    nvtx: Annotated[bool, typer.Option("--nvtx/--no-nvtx", help="Look up the NVTX ranges around launches.")] = True,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many configurations and outliers to show.")] = 20,
    json: Json = False,
) -> None:
    """Watch one kernel: how it is launched, what holds it back, which launches stand out, and whether it drifts.

    Times are those of equal launches: the same grid, block, registers, shared memory and kind of GPU.
    """
    from proctor.trace.launches.kernel_choice import AmbiguousKernelError
    from proctor.trace.launches.stakeout import watch

    with opened(file) as trace:
        try:
            watched = watch(trace, kernel, all_=all_, gpu=gpu, nvtx=nvtx)
        except AmbiguousKernelError as error:
            _show_candidates(error, kernel, limit, json=json)
            raise typer.Exit(_AMBIGUOUS) from None
        if as_csv:
            _write_csv(watched.launches())
        elif json:
            _write_json(watched, launches=launches)
        else:
            _show(watched, limit, launches=launches)


def _show_candidates(error: AmbiguousKernelError, kernel: str, limit: int, *, json: bool) -> None:
    if json:
        json_line("ambiguous", pattern=kernel, candidates=error.candidates)
        return
    from proctor.trace.names import short_name

    stdout.say(
        f"{kernel!r} fits {counted(len(error.candidates), 'kernel')}; name one, by #ID or more of it, or use --all:"
    )
    rows = [
        (f"#{each.id}", f"{each.total / 1e6:,.3f}", each.launches, short_name(each.name, 90))
        for each in error.candidates[:limit]
    ]
    stdout.print(table(["id", "ms", "launches", "kernel"], rows))
    if len(error.candidates) > limit:
        stdout.say(f"and {counted(len(error.candidates) - limit, 'other')}: --limit shows more")


def _write_json(watched: Watch, *, launches: bool) -> None:
    found = watched.found
    for configuration in found.configurations:
        json_line("configuration", **msgspec.to_builtins(configuration))
    if launches:
        for launch in watched.launches():
            json_line("launch", **msgspec.to_builtins(launch))
    whole = msgspec.to_builtins(found)
    json_line("stakeout", **{**whole, "configurations": len(found.configurations)})


def _write_csv(launches: Iterable[Launch]) -> None:
    """A line a launch, with what its fields are called as the first line."""
    from proctor.trace.launches.stakeout_model import Launch

    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(Launch.__struct_fields__)
    for number, launch in enumerate(launches, start=1):
        rows.writerow([visible(cell) if isinstance(cell, str) else cell for cell in msgspec.structs.astuple(launch)])
        if number % _CSV_AT_ONCE == 0:
            if not write(text.getvalue()):
                return
            text.seek(0)
            text.truncate()
    write(text.getvalue())


def _show(watched: Watch, limit: int, *, launches: bool) -> None:
    from proctor.cli.trace import stakeout_text as text

    found = watched.found
    for line in text.head(found):
        stdout.say(line)
    shown = found.configurations[:limit]
    stdout.print(text.asked(shown))
    stdout.print(text.took(shown, found.total))
    others = len(found.configurations) + found.more_configurations - len(shown)
    if others:
        stdout.say(
            f"and {counted(others, 'other configuration')}: --limit shows more, up to {len(found.configurations):,}"
        )
    for line in text.findings(found, shown):
        stdout.say(line)
    if found.slowest:
        stdout.print(text.launch_table(found.slowest[:limit], "furthest above the median of equal launches"))
    for remark in found.remarks:
        stdout.say(f"note: {remark}")
    if launches:
        stdout.say(text.LAUNCH_COLUMNS)
        for launch in watched.launches():
            stdout.say(text.launch_line(launch))
