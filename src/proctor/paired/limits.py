"""Limits that a run is held against, and what becomes of each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from proctor.rows import UserError

Outcome = Literal["passed", "failed", "cannot be judged"]
Kind = Literal["min", "max", "drop"]


@dataclass(frozen=True, slots=True)
class Limit:
    """One condition.

    Attributes:
        kind: a ``min`` or ``max`` of a metric, or the most that it may get worse by (``drop``) against the baseline.
        metric: its name; None is the headline (for a ``drop``).
        value: the limit, in the metric's unit (shares between 0 and 1).
    """

    kind: Kind
    metric: str | None
    value: float

    @classmethod
    def of(cls, kind: Kind, text: str) -> Limit:
        """``METRIC=VALUE``; for a ``drop`` also ``VALUE`` alone.

        Raises:
            UserError: it is neither, or not a finite number; a ``drop`` below zero.
        """
        name, equals, number = text.rpartition("=")
        option = {"min": "--min", "max": "--max", "drop": "--max-drop"}[kind]
        if kind != "drop" and not (equals and name):
            raise UserError(f"{text!r} is no METRIC=VALUE", where=option, fix="e.g. accuracy=0.9")
        try:
            value = float(number)
        except ValueError:
            raise UserError(f"{number!r} is not a number", where=option) from None
        if not math.isfinite(value) or (kind == "drop" and value < 0):
            raise UserError(f"{number} cannot be a limit", where=option)
        return cls(kind, name or None, value)

    def __str__(self) -> str:
        name = self.metric or "headline"
        sign = {"min": ">=", "max": "<="}.get(self.kind)
        return f"{name} {sign} {self.value:g}" if sign else f"{name} worse by <= {self.value:g}"


@dataclass(frozen=True, slots=True)
class Checked:
    """What became of one condition.

    Attributes:
        side: which checkpoint.
        condition: e.g. ``accuracy >= 0.9``.
        outcome: ``cannot be judged`` where the 95 % interval holds the limit, or there is nothing to judge.
        value, low, high: the number and its interval; for a ``drop`` by how much it got worse.
        n: rows it covers.
        why: what to know about it.
        rows_needed: about how many rows would tell, if the value stayed as it is; None where that is no question.
    """

    side: str
    condition: str
    outcome: Outcome
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    why: str = ""
    rows_needed: int | None = None


def exact(side: str, condition: str, value: float, limit: float) -> Checked:
    """A count of this very run, which needs no interval: it must not exceed `limit`."""
    return Checked(side, condition, "passed" if value <= limit else "failed", value)


def held(
    side: str,
    limit: Limit,
    value: float | None,
    low: float | None,
    high: float | None,
    n: int,
    *,
    point: bool,
    flat: bool = False,
) -> Checked:
    """Holds a number against a limit: passed or failed where the whole interval is on one side of it.

    Args:
        side: which checkpoint.
        limit: for ``drop``, the numbers are by how much the metric got worse.
        value, low, high, n: the number, its interval, the rows it covers.
        point: judge the number alone, as if it had no error.
        flat: no row differs from another, so that the interval narrows with the rows and not with their square root.
    """
    condition = str(limit)
    if value is None:
        return Checked(side, condition, "cannot be judged", n=n, why="no row has this metric")
    upwards = limit.kind == "min"
    if point:
        good = value >= limit.value if upwards else value <= limit.value
        return Checked(
            side, condition, "passed" if good else "failed", value, low, high, n, "judged on the value alone"
        )
    if low is None or high is None:
        why = "there is no interval to judge by; --point judges the value alone"
        return Checked(side, condition, "cannot be judged", value, low, high, n, why)
    if (low >= limit.value) if upwards else (high <= limit.value):
        return Checked(side, condition, "passed", value, low, high, n)
    if (high < limit.value) if upwards else (low > limit.value):
        return Checked(side, condition, "failed", value, low, high, n)
    needed = _rows_needed(limit.value, value, (low, high), n, power=1 if flat else 2)
    more = f"about {needed:,} rows would tell" if needed else "no number of rows would tell: the value is the limit"
    why = f"the interval holds the limit at {n:,} rows; {more}"
    return Checked(side, condition, "cannot be judged", value, low, high, n, why, needed)


def _rows_needed(limit: float, value: float, ends: tuple[float, float], n: int, *, power: int) -> int | None:
    """Rows at which the interval would end at the limit, if its width goes with 1 / rows^(1 / power)."""
    gap = abs(value - limit)
    half = value - ends[0] if value > limit else ends[1] - value
    if gap <= 1e-12 or half <= 0:
        return None
    return max(n + 1, math.ceil(n * (half / gap) ** power))
