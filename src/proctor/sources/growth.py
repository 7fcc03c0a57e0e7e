"""Functions of column expressions whose results can be of any size, and what they are held to.

DuckDB's memory limit does not cover what they write, so how much that is must stand in the expression itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

LARGEST_COUNT = 1000
"""Largest width, length or number of repetitions."""

_FORMATS = frozenset({"format", "printf"})
_COUNTED = {"repeat": (1,), "lpad": (1,), "rpad": (1,), "list_resize": (1,), "array_resize": (1,), "bar": (3,)}
_RANGES = frozenset({"range", "generate_series"})
_WIDE = re.compile(r"\d{4}|\*|\{[^}]*\{")  # a width of four digits, or one that is an argument


def fault_of(function: Mapping[str, Any]) -> str | None:
    """Why a call of a function, as DuckDB tells it, is refused; None: it is not."""
    name = function["function_name"].lower()
    arguments = [argument.get("expression", argument) for argument in function.get("arguments", ())]
    if name in _FORMATS:
        text = _constant(arguments[0]) if arguments else None
        sound = isinstance(text, str) and not _WIDE.search(text)
        return None if sound else f"{name}() needs a constant format with widths of at most three digits"
    places = range(len(arguments)) if name in _RANGES else _COUNTED.get(name, ())
    counts = [_constant(arguments[place]) for place in places if place < len(arguments)]
    if not all(isinstance(count, int) and abs(count) <= LARGEST_COUNT for count in counts):
        return f"{name}() needs constant whole numbers of at most {LARGEST_COUNT:,}"
    return None


def grows(function: Mapping[str, Any]) -> bool:
    """Whether a call repeats what it is given: two inside each other would multiply."""
    return function["function_name"].lower() in _COUNTED


def _constant(part: Mapping[str, Any]) -> str | int | None:
    """The value of a text or whole number; None for anything else. DuckDB spells constants in two ways, by version."""
    if part.get("class") != "CONSTANT":
        return None
    if "literal" in part:
        kind, text = part["literal"].get("kind"), part["literal"].get("text")
        return int(text) if kind == "INTEGER" else text if kind == "STRING" else None
    value = part.get("value", {}).get("value")
    return value if isinstance(value, str | int) else None
