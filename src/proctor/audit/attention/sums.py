"""Sums depend on their order: the smallest example of why two correct attention kernels differ."""

from __future__ import annotations

import msgspec
import numpy as np

EXAMPLE = (1.0, 1e-7, -1.0)
"""``(1 + 1e-7) - 1``; exactly 1e-7."""
FORMATS = ("float64", "float32", "float16")


class Sums(msgspec.Struct, frozen=True, kw_only=True):
    """Three numbers, added in three orders, each rounded to the format after every step.

    Attributes:
        format: of the numbers and of every intermediate result.
        left: ``(a + b) + c``.
        right: ``a + (b + c)``.
        outer: ``(a + c) + b``.
    """

    format: str
    a: str
    b: str
    c: str
    left: str
    right: str
    outer: str


def sums(a: float = EXAMPLE[0], b: float = EXAMPLE[1], c: float = EXAMPLE[2]) -> tuple[Sums, ...]:
    """The three sums in each format, as Python and NumPy print them (the shortest decimals that name the number)."""
    return tuple(_in(name, a, b, c) for name in FORMATS)


def _in(name: str, a: float, b: float, c: float) -> Sums:
    kind = np.dtype(name).type
    x, y, z = kind(a), kind(b), kind(c)
    found = {"a": x, "b": y, "c": z, "left": (x + y) + z, "right": x + (y + z), "outer": (x + z) + y}
    return Sums(format=name, **{key: str(value) for key, value in found.items()})
