"""What a tracker is told, one entry at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import msgspec

Value = float | int | str | bool | None
Kind = Literal["params", "metrics", "summary"]
"""What the run was set to; how it goes; how it ended."""
_LONGEST = 1000
"""Characters of a text; trackers refuse longer ones (MLflow's oldest servers beyond 500 to 6,000)."""


class Entry(msgspec.Struct, frozen=True):
    """One line of ``trackers/NAME.jsonl``.

    Attributes:
        n: number of the entry, 1, 2, ... in the order of the file.
        kind: what `values` are.
        time: seconds since the epoch.
        step: position on the tracker's x-axis: rows done. Never falls.
        values: by name; numbers are finite.
    """

    n: int
    kind: Kind
    time: float
    step: int
    values: dict[str, Value]


def cleaned(values: Mapping[str, Value]) -> dict[str, Value]:
    """`values` without those that are nothing (None, NaN, infinity), and with long texts cut."""
    return {name: _cut(value) for name, value in values.items() if _is_something(value)}


def _is_something(value: Value) -> bool:
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


def _cut(value: Value) -> Value:
    return value[: _LONGEST - 1] + "…" if isinstance(value, str) and len(value) > _LONGEST else value


def numbers(entry: Entry) -> dict[str, float]:
    """The values of `entry` that can be drawn; truth counts as 1 or 0."""
    return {name: float(value) for name, value in entry.values.items() if isinstance(value, int | float)}


def texts(entry: Entry) -> dict[str, str]:
    """The values of `entry` that are texts."""
    return {name: value for name, value in entry.values.items() if isinstance(value, str)}
