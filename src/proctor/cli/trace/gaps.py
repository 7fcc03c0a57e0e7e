"""``proctor trace gaps``: when the GPUs did nothing, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from proctor.cli.output import counted, json_line, stdout, table
from proctor.cli.run import Json
from proctor.cli.trace.heading import TraceFile, opened
from proctor.cli.trace.scope import ms, percent, scope_of, us
from proctor.cli.trace.timeline import Device, Since, Until

if TYPE_CHECKING:
    from proctor.trace.work.gaps import Gap, Gaps

_NAME_WIDTH, _RANGE_WIDTH = 40, 60


def gaps(
    file: TraceFile,
    since: Since = None,
    until: Until = None,
    device: Device = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many gaps to rank and explain.")] = 5,
    json: Json = False,
) -> None:
    """Show how long each GPU was idle, and for the longest gaps what the CPU did meanwhile.

    Idle is when no kernel, copy, memset or CUDA graph runs on a GPU, from its first work to its last. Exit code 1 where
    that cannot be told, as with graphs whose kernels were not recorded.
    """
    from proctor.trace.timeline.timeline import origin
    from proctor.trace.work.gaps import gaps as find

    with opened(file) as trace:
        found = find(trace, scope_of(trace, since, until, device), top=limit)
        zero = origin(trace)
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
        stdout.say(f"{number}. {gap.why}{_within(gap)}")
    idle = sum(each.idle for each in found.devices)
    if idle:
        stdout.say(f"{_these(len(found.gaps))} {percent(found.ranked / idle)} of all idle time, by cause:")
    for cause in found.causes:
        stdout.say(f"  {cause.cause}: {counted(cause.gaps, 'gap')}, {ms(cause.length)} ms")


def _row(number: int, gap: Gap, zero: int) -> tuple[object, ...]:
    from proctor.trace.names import short_name

    before, after = (f"{short_name(each.name, _NAME_WIDTH)} (stream {each.stream})" for each in (gap.before, gap.after))
    return number, ms(gap.start - zero), us(gap.length), gap.device, str(gap.cause), before, after


def _within(gap: Gap) -> str:
    return f", in the range {gap.meanwhile.range[:_RANGE_WIDTH]}" if gap.meanwhile.range else ""


def _these(number: int) -> str:
    return "this gap is" if number == 1 else f"these {number:,} gaps are"
