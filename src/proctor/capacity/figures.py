"""Numbers that say where they are from, and checks that say what they compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Origin = Literal["measured", "config", "assumed", "given", "computed"]
"""Where a number is from: the sample or a benchmark, the model's or the source's own files, an estimate of ours, the
spec or the command line, or other numbers."""

Level = Literal["ok", "tight", "unknown", "fails"]
"""``tight`` runs, but waits or spills; ``unknown`` cannot be checked; ``fails`` cannot run."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of the plan.

    Attributes:
        name: what it is.
        value: the number; None if it is not known.
        unit: ``B``, ``s``, ``rows/s`` …; empty for plain numbers.
        formula: how it was found.
        origin: see `Origin`.
    """

    name: str
    value: float | None
    unit: str
    formula: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison of what is needed with what there is.

    Attributes:
        what: ``cpu``, ``gpu``, ``engines``, ``memory``, ``object store``, ``gpu memory``, ``disk``, ``data``,
            ``model`` or ``tasks``.
        where: name of the node, or ``cluster``.
        level: the result.
        need, have: what was compared; None if not known.
        unit: unit of both.
        formula: the arithmetic, with its numbers.
        advice: what to do about it, empty if nothing.
    """

    what: str
    where: str
    level: Level
    need: float | None
    have: float | None
    unit: str
    formula: str
    advice: str = ""


def shown(value: float | None, unit: str) -> str:
    """A number as people read it: bytes in decimal units, others with their unit."""
    if value is None:
        return "unknown"
    if unit == "B":
        return _bytes(value)
    if unit == "s":
        return f"{value * 1000:.3g} ms" if abs(value) < 1 else f"{value:,.3g} s"
    text = f"{value:,.0f}" if abs(value) >= 1000 or float(value).is_integer() else f"{value:.3g}"
    return f"{text} {unit}".rstrip()


def _bytes(value: float) -> str:
    for size, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(value) >= size:
            return f"{value / size:,.1f} {name}"
    return f"{value:,.0f} B"
