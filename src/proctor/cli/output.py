"""What commands print: tables and lines for people on stdout and stderr, or one JSON object a line for machines."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typing_extensions import override

_WIDTH = None if sys.stdout.isatty() else 140  # a pipe has no width; tables should not wrap for want of one


class Terminal(Console):
    """Where people read. A reader who goes away (``| head``) is no reason to end a run: the rest is then not shown."""

    def say(self, text: str, *, style: str | None = None) -> None:
        """Prints a line as it is: no markup in it, no wrapping, control characters spelled out."""
        self.print(visible(text), markup=False, soft_wrap=True, style=style)

    @override
    def on_broken_pipe(self) -> None:
        self.quiet = True
        _drop(sys.stderr if self.stderr else sys.stdout)


stdout = Terminal(highlight=False, emoji=False, width=_WIDTH)
stderr = Terminal(stderr=True, highlight=False, emoji=False, width=_WIDTH)


def json_line(event: str, **fields: Any) -> None:
    """One line for machines: an object with an ``event`` and its fields. Numbers that JSON does not know are null."""
    line = msgspec.json.encode({"event": event, **fields}, enc_hook=str).decode()
    try:
        typer.echo(line)
    except BrokenPipeError:
        _drop(sys.stdout)


def write(text: str) -> bool:
    """Prints text for machines, such as lines of CSV, as it is. False where nobody reads any more."""
    try:
        sys.stdout.write(text)  # typer.echo would leave out what commands a terminal
        sys.stdout.flush()
    except BrokenPipeError:
        _drop(sys.stdout)
        return False
    return True


def visible(text: str) -> str:
    """`text` with everything that cannot be seen spelled out: models and data may hold what commands a terminal."""
    return "".join(c if c.isprintable() or c in " \n\t" else repr(c)[1:-1] for c in text)


def escaped(text: str) -> str:
    """`text` as it is, to stand inside markup."""
    return escape(visible(text))


def _drop(stream: TextIO) -> None:
    """From now on what goes to `stream` goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None) -> Table:
    """A table; columns after the first are right-aligned when all their cells look like numbers."""
    made = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    cells = [[_text(cell) for cell in row] for row in rows]
    for position, name in enumerate(columns):
        numeric = bool(cells) and all(_numeric(row[position]) for row in cells)
        made.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        made.add_row(*row)
    return made


def counted(number: int, noun: str) -> str:
    """``1 row``, ``2,000 rows``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float | None) -> str:
    """``1:02:03`` or ``2:03``."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _numeric(cell: str) -> bool:
    return cell == "" or cell[0] in "+-0123456789" or cell == "-"


def _text(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, int) and not isinstance(cell, bool):
        return f"{cell:,}"
    return escaped(str(cell))
