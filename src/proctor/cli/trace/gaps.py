"""``proctor trace gaps``: when the GPUs did nothing, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from proctor.cli.output import json_line, stdout, table
from proctor.cli.run import Json
from proctor.cli.trace.heading import TraceFile, opened
from proctor.cli.trace.scope import ms, percent, scope_of, us
from proctor.cli.trace.timeline import Device, Since, Until

if TYPE_CHECKING:
    from proctor.trace.work.gap_causes import Part
    from proctor.trace.work.gaps import Gap, Gaps

_NAME_WIDTH = 40


def gaps(
    file: TraceFile,
    since: Since = None,
    until: Until = None,
    device: Device = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many gaps to rank and explain.")] = 20,
    json: Json = False,
) -> None:
    """Show how long each GPU was idle, and for the longest gaps what the CPU did meanwhile.

    Idle is when no kernel, copy, memset or CUDA graph runs on a GPU, from its first work to its last. Exit code 1 where
    that cannot be told, as with graphs whose kernels were not recorded.
    """
    from proctor.trace.work.gaps import gaps as find

    with opened(file) as trace:
        found = find(trace, scope_of(trace, since, until, device), top=limit)
        zero = trace.window[0]
    if json:
        for gap in found.gaps:
            json_line("gap", at_ns=gap.start - zero, **msgspec.to_builtins(gap))
        rest = {name: value for name, value in msgspec.to_builtins(found).items() if name != "gaps"}
        json_line("gaps", origin_ns=zero, **rest)
        return
    _show(found, zero)


def _show(found: Gaps, zero: int) -> None:
    rows = [
        (
            f"device {each.device}, pid {', '.join(map(str, each.pids))}",
            ms(each.idle), percent(each.share), each.gaps,
            ms(each.busy), ms(each.span), ms(each.before_first), ms(each.after_last),
        )
        for each in found.devices
    ]  # fmt: skip
    columns = ["GPU", "idle ms", "idle", "gaps", "busy ms", "span ms", "before first ms", "after last ms"]
    stdout.print(table(columns, rows))
    stdout.say("idle and busy are shares of the span from first work to last; what lies before and after is in neither")
    columns = ["#", "at ms", "us", "GPU", "cause", "before", "after"]
    stdout.print(table(columns, [_row(number, gap, zero) for number, gap in enumerate(found.gaps, start=1)]))
    for number, gap in enumerate(found.gaps, start=1):
        stdout.say(f"{number}. {gap.why}{_meanwhile(gap)}")
    idle = sum(each.idle for each in found.devices)
    if idle:
        stdout.say(f"these {len(found.gaps):,} gaps are {percent(found.ranked / idle)} of all idle time, by cause:")
    for cause in found.causes:
        stdout.say(f"  {cause.cause}: {cause.gaps:,} gaps, {ms(cause.length)} ms")


def _row(number: int, gap: Gap, zero: int) -> tuple[object, ...]:
    from proctor.trace.names import short_name

    before, after = (f"{short_name(each.name, _NAME_WIDTH)} (stream {each.stream})" for each in (gap.before, gap.after))
    return number, ms(gap.start - zero), us(gap.length), gap.device, str(gap.cause), before, after


def _meanwhile(gap: Gap) -> str:
    kinds = (
        ("calls", gap.meanwhile.calls),
        ("ranges", gap.meanwhile.ranges),
        ("OS calls", gap.meanwhile.os_calls),
    )
    told = [f"{name} {_parts(parts)}" for name, parts in kinds if parts]
    return f" ({'; '.join(told)})" if told else ""


def _parts(parts: tuple[Part, ...]) -> str:
    return ", ".join(f"{part.name[:_NAME_WIDTH]} x{part.count:,} {us(part.length)} us" for part in parts[:3])
