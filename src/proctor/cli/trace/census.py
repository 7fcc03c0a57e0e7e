"""``proctor trace census``: where the time went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from proctor.cli.output import counted, json_line, stdout, table
from proctor.cli.run import Json
from proctor.cli.trace.heading import TraceFile, opened
from proctor.cli.trace.scope import ms, percent, scope_of, us
from proctor.cli.trace.timeline import Device, Since, Until
from proctor.rows import UserError
from proctor.trace.work.scope import WHOLE, By, nothing_in

if TYPE_CHECKING:
    from proctor.trace import Trace
    from proctor.trace.work.census import Busy, Census, Line
    from proctor.trace.work.scope import Scope

_NAME_WIDTH = 46
_PLACES = (By.STREAM, By.DEVICE, By.PROCESS)


def census(
    file: TraceFile,
    by: Annotated[By, typer.Option("--by", help="What to group by; full is the kernel's demangled name.")] = By.FULL,
    since: Since = None,
    until: Until = None,
    device: Device = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Only calls, total, mean, least and most of each kernel: one light pass."),
    ] = False,
    whole: Annotated[
        bool,
        typer.Option("--whole", help="Busy time and devices also of a huge trace, where they cost most of the time."),
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many groups to show.")] = 30,
    json: Json = False,
) -> None:
    """Show where the GPU time went: launches and time of each kernel, or of groups of kernels.

    "Kernels busy" is the time in which at least one kernel ran (a union of intervals); the sum of durations is more
    where kernels run side by side. With --since and --until, kernels that start within count, whole.
    """
    from proctor.trace.launches.kernel_choice import ids_of
    from proctor.trace.timeline.timeline import origin
    from proctor.trace.work.census import census as take
    from proctor.trace.work.census import kept_census

    if quick and by is not By.FULL:
        raise UserError("--quick counts by demangled name", fix="leave out --by, or --quick")
    with opened(file) as trace:
        if quick:
            _quickly(trace, scope_of(trace, since, until, device), limit, json=json)
            return
        scope = scope_of(trace, since, until, device)
        fully = whole or None  # None: as the size of the trace suggests
        found = kept_census(trace, by, whole=fully) if scope == WHOLE else take(trace, by, scope, whole=fully)
        if not found.calls:
            raise nothing_in(trace, scope, "a census")
        shown = found.lines[:limit]
        ids = ids_of(trace, [line.key for line in shown]) if by is By.FULL else {}
        zero = origin(trace)
    if json:
        _as_json(found, shown, ids, zero)
    else:
        _show(found, shown, ids)


def _quickly(trace: Trace, scope: Scope, limit: int, *, json: bool) -> None:
    from proctor.trace.names import short_name
    from proctor.trace.work.census_rows import totals

    if not trace.has("kernels"):
        raise trace.missing("kernels", "a census")
    found = totals(trace, scope)
    if not found:
        raise nothing_in(trace, scope, "a census")
    longest = sorted(found.items(), key=lambda item: -item[1].total)[:limit]
    texts = trace.text(name for name, _ in longest)
    calls, time = (sum(getattr(each, figure) for each in found.values()) for figure in ("calls", "total"))
    if json:
        for name, each in longest:
            json_line("kernel", id=name, key=texts[name], mean=each.mean, **msgspec.to_builtins(each))
        json_line("census", kernels=len(found), calls=calls, total=time)
        return
    rows = [
        (
            f"#{name}", short_name(texts[name], _NAME_WIDTH), each.calls, ms(each.total),
            percent(each.total / time if time else 0), us(each.mean), us(each.least), us(each.most),
        )
        for name, each in longest
    ]  # fmt: skip
    stdout.print(table(["id", "kernel", "calls", "total ms", "share", "mean us", "least us", "most us"], rows))
    stdout.say(f"launches of kernels: {calls:,}, {ms(time)} ms in sum; {counted(len(found), 'name')}")


def _as_json(found: Census, shown: Sequence[Line], ids: Mapping[str, int], zero: int) -> None:
    for line in shown:
        json_line(
            "group",
            id=ids.get(line.key),
            at_ns=None if line.first is None else line.first - zero,
            **msgspec.to_builtins(line),
        )
    rest = {name: value for name, value in msgspec.to_builtins(found).items() if name != "lines"}
    json_line("census", groups=len(found.lines), origin_ns=zero, **rest)


def _show(found: Census, shown: Sequence[Line], ids: Mapping[str, int]) -> None:
    columns = ["kernel" if found.by in (By.FULL, By.SHORT) else str(found.by), "calls", "total ms", "share", "mean us"]
    columns += ["median us", "p95 us", "max us", *(() if found.by is By.FULL else ("names",))]
    columns += ["devices"] if found.whole else []
    rows = [_row(line, found.by) for line in shown]
    if found.by is By.FULL:
        columns.insert(0, "id")
        rows = [(f"#{ids[line.key]}" if line.key in ids else None, *row) for line, row in zip(shown, rows, strict=True)]
    stdout.print(table(columns, rows))
    if len(found.lines) > len(shown):
        stdout.say(f"{counted(len(found.lines) - len(shown), 'more group')}: --limit")
    stdout.say(f"launches of kernels: {found.calls:,}, {ms(found.total)} ms in sum")
    if any(line.error for line in shown):
        stdout.say("medians and p95 are within 0.4% (the JSON has each one's error); all other figures are exact")
    if found.without_times:
        stdout.say(f"{counted(found.without_times, 'kernel')} without usable times, in no figure here")
    _show_busy(found)
    if found.by not in _PLACES:
        _show_copies(found)


def _row(line: Line, by: By) -> tuple[object, ...]:
    from proctor.trace.names import short_name

    name = short_name(line.key, _NAME_WIDTH) if by in (By.FULL, By.SHORT) else line.key
    devices = () if line.devices is None else (",".join(map(str, line.devices)),)
    figures = (us(line.mean), us(line.median), us(line.p95), us(line.most))
    names = () if by is By.FULL else (line.names,)
    return name, line.calls, ms(line.total), percent(line.share), *figures, *names, *devices


def _show_busy(found: Census) -> None:
    """By stream the streams, otherwise the devices: the other of the two says the same again where each has one."""
    if found.devices is None or found.streams is None:
        stdout.say("a huge trace: busy time, and on which devices each group ran, are left out: --whole")
        return
    rows = [_busy_row(busy) for busy in (found.streams if found.by is By.STREAM else found.devices)]
    columns = ["where kernels ran", "kernels busy ms", "sum ms", "span ms", "kernels busy"]
    stdout.print(table(columns, rows))
    stdout.say(
        "kernels busy: at least one kernel ran (a union of intervals), of the span from first start to last end; with "
        "copies and memsets: gaps"
    )


def _busy_row(busy: Busy) -> tuple[object, ...]:
    where = f"device {busy.device}, pid {busy.pid}"
    if busy.stream is not None:
        where += f", stream {busy.stream.stream} (context {busy.stream.context})"
    return where, ms(busy.busy), ms(busy.sum), ms(busy.span), percent(busy.share)


def _show_copies(found: Census) -> None:
    rows: list[tuple[object, ...]] = [
        (copy.kind, _memories(copy.source, copy.target), copy.calls, copy.bytes, ms(copy.total), us(copy.most))
        for copy in found.copies
    ]
    rows += [("memset", each.memory, each.calls, each.bytes, ms(each.total), us(each.most)) for each in found.memsets]
    if rows:
        stdout.print(table(["copy", "memory", "calls", "bytes", "total ms", "max us"], rows))


def _memories(source: str, target: str) -> str:
    return f"{source} to {target}" if source or target else ""
