"""From values to pixels, with round numbers for the ticks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Tick(NamedTuple):
    """A mark on an axis: where, and what it says."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps `low` .. `high` linearly to the pixels `start` .. `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Pixel of `value`, rounded to tenths."""
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, about: int, text: Callable[[float], str]) -> list[Tick]:
        """About so many ticks, at round values."""
        step = nice_step((self.high - self.low) / max(1, about))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [Tick(self(i * step), text(i * step)) for i in range(first, last + 1)]


def nice_step(rough: float) -> float:
    """The smallest of 1, 2 or 5 times a power of ten that is not below `rough`."""
    power = 10 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))


def apart(places: Sequence[float], gap: float, lowest: float) -> list[float]:
    """Pixels of labels that belong at `places`, moved until they are `gap` apart and none lies below `lowest`."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    floor, moved = -math.inf, list(places)
    for i in order:
        floor = max(places[i], floor + gap)
        moved[i] = floor
    excess = max(0.0, floor - lowest) if order else 0.0
    return [round(place - excess, 1) for place in moved]
