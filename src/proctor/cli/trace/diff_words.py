"""Figures and lines of a diff in words: units, changes, names that fit."""

from __future__ import annotations

import textwrap

from proctor.cli.output import escaped, stdout, visible
from proctor.trace.names import short_name

WIDTH = 140
"""Lines of a diff are never longer, however wide the terminal is."""
_SIZES = ("B", "kB", "MB", "GB", "TB")
_TIMES = 10
"""From this ratio on, a change is told as a multiple: per cents of it are hard to read."""


def width() -> int:
    """Columns to fill."""
    return min(stdout.width, WIDTH)


def say(text: str, *, indent: int = 0, style: str | None = None) -> None:
    """Prints a paragraph of whole words; further lines are indented by two more."""
    for line in _lines(text, indent):
        stdout.say(line, style=style)


def say_state(state: str, style: str, text: str) -> None:
    """The same, with a coloured word in front."""
    first, *rest = _lines(f"{state}: {text}", 0)
    stdout.print(f"[{style}]{state}[/]{escaped(first[len(state) :])}", soft_wrap=True)
    for line in rest:
        stdout.say(line)


def _lines(text: str, indent: int) -> list[str]:
    before, further = " " * indent, " " * (indent + 2)
    made = textwrap.wrap(
        visible(text), width(), initial_indent=before, subsequent_indent=further, break_on_hyphens=False
    )
    return made or [before]


def fitted(name: str, room: int) -> str:
    """A kernel's name in at most `room` columns."""
    return short_name(name, room)


def value(number: float | None, unit: str, sign: str = "") -> str:
    """A figure with its unit: milliseconds, sizes, or a count."""
    if number is None:
        return "-"
    if unit == "ns":
        return f"{number / 1e6:{sign},.3f} ms"
    if unit == "bytes":
        return size(number, sign)
    return f"{number:{sign},.0f}" if number == int(number) else f"{number:{sign},.1f}"


def size(count: float, sign: str = "") -> str:
    """``272 B``, ``8.05 GB``: three digits that count."""
    scaled, unit = count, _SIZES[0]
    for unit in _SIZES:
        if abs(scaled) < 999.5 or unit == _SIZES[-1]:
            break
        scaled /= 1000
    digits = 0 if unit == "B" or abs(scaled) >= 99.95 else 1 if abs(scaled) >= 9.995 else 2
    return f"{scaled:{sign},.{digits}f} {unit}"


def change(a: float | None, b: float | None) -> str:
    """``+5.0%``; ``x 69,089`` of what became a multiple."""
    if a is None or b is None or (not a and not b):
        return "-"
    if not a:
        return "new"
    return f"x {b / a:,.0f}" if b / a >= _TIMES else f"{b / a - 1:+.1%}"
