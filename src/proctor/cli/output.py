"""What commands print: tables and lines for people on stdout and stderr, or one JSON object a line for machines."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

_WIDTH = None if sys.stdout.isatty() else 140  # a pipe has no width; tables should not wrap for want of one
stdout = Console(highlight=False, width=_WIDTH)
stderr = Console(stderr=True, highlight=False, width=_WIDTH)


def json_line(event: str, **fields: Any) -> None:
    """One line for machines: an object with an ``event`` and its fields."""
    typer.echo(json.dumps({"event": event, **fields}, ensure_ascii=False, default=_plain))


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
    return str(cell).replace("[", r"\[")


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)
