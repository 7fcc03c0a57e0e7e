"""``proctor trace decode``: what a kernel's name says, field by field, with the evidence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from proctor.cli.output import counted, escaped, json_line, stdout, table
from proctor.cli.run import Json
from proctor.cli.trace.heading import opened
from proctor.rows import UserError

if TYPE_CHECKING:
    from proctor.trace.launches.kernel_choice import AmbiguousKernelError, Kernel
    from proctor.trace.names import Decoded
    from proctor.trace.names.listing import Configuration

_AMBIGUOUS = 1
_SHOWN = 120
_CANDIDATES = 20


def decode(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A kernel's name. With --trace: #ID, a part of it, or an expression.")
    ],
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="Take the kernel and how it was launched from this trace."),
    ] = None,
    more: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    json: Json = False,
) -> None:
    """Read a kernel's name, and check it against how the kernel was launched.

    A field whose meaning is not publicly known is shown as unknown. A name that no grammar knows is no error.
    """
    from proctor.trace.names import decode as read_name

    if more:
        raise UserError("decode reads one name", fix="proctor trace decode NAME, or with --trace FILE for its kernels")
    if trace is None and Path(name).is_file():
        raise UserError(f"{name} is a file", fix="give the name of a kernel, and the trace as --trace FILE")
    if trace is None:
        _print(read_name(name), [], json=json)
        return
    from proctor.trace.launches.kernel_choice import AmbiguousKernelError, choose
    from proctor.trace.names.listing import configurations_of

    with opened(trace) as source:
        try:
            kernel = choose(source, name)[0]
        except AmbiguousKernelError as error:
            _show_candidates(error, name, json=json)
            raise typer.Exit(_AMBIGUOUS) from None
        configurations = configurations_of(source, kernel)
    _print(read_name(kernel.name, configurations[0].launch), configurations, json=json)


def _print(found: Decoded, configurations: list[Configuration], *, json: bool) -> None:
    if json:
        json_line("decoded", **msgspec.to_builtins(found), configurations=msgspec.to_builtins(configurations))
        return
    stdout.say(_cut(found.normal))
    placed = f"{found.category} (rule {found.rule})" if found.rule else "other: no rule of the line-up fits"
    if not found.family:
        stdout.say(f"no grammar reads this name; the line-up says {placed}")
        return
    stdout.say(f"{found.summary}; line-up: {placed}")
    rows = [(field.name, _cut(field.value), field.meaning, field.evidence or "-") for field in found.fields]
    stdout.print(table(["field", "value", "meaning", "from"], rows))
    if configurations:
        first = configurations[0]
        more = (
            f"; {counted(len(configurations) - 1, 'other configuration')} not looked at" if configurations[1:] else ""
        )
        stdout.say(f"compared with {_launches(first.launches)}, those with the most time{more}")
    for line in found.evidence:
        stdout.say(f"  agrees: {line}")
    for line in found.contradictions:
        stdout.print(f"  [bold red]contradicts:[/] {escaped(line)}", soft_wrap=True)
    stdout.say(f"grammar: {found.family}, from {found.source}")


def _launches(count: int) -> str:
    return "1 launch" if count == 1 else f"{count:,} equal launches"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _show_candidates(error: AmbiguousKernelError, name: str, *, json: bool) -> None:
    if json:
        json_line("ambiguous", pattern=name, candidates=error.candidates)
        return
    stdout.say(f"{name!r} fits {counted(len(error.candidates), 'kernel')}; name one, by #ID or more of it:")
    stdout.print(table(["id", "ms", "launches", "kernel"], [_row(kernel) for kernel in error.candidates[:_CANDIDATES]]))
    if len(error.candidates) > _CANDIDATES:
        stdout.say(f"and {counted(len(error.candidates) - _CANDIDATES, 'other')}")


def _row(kernel: Kernel) -> tuple[object, ...]:
    from proctor.trace.names import short_name

    return f"#{kernel.id}", f"{kernel.total / 1e6:,.3f}", kernel.launches, short_name(kernel.name)
