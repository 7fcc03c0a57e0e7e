"""How finely log-probabilities were transported, read from the values themselves."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CLAMP = -9999.0
"""What vLLM's HTTP endpoints send for anything below it, -inf included (``max(logprob, -9999.0)``)."""

MOST_VALUES = 2048
FLOAT32_BITS = 24
FLOAT32_DIGITS = 9
"""Significant digits that tell every float32 apart."""
MOST_DIGITS = 15
"""Decimals of so many significant digits survive a float64; unrounded float64 mostly need 16 or 17."""
SHORT_BY_CHANCE = 16.2
"""A float64 has a decimal form of at most s digits with probability 10^(s - 16.2): there are 9 x 10^14 decimals of 15
digits and 1.46 x 10^16 float64 between 1 and 10, hence 10^-1.2 for s = 15, and ten times less for each digit less."""
LEAST_EVIDENCE = 6.0
"""Values are called rounded where unrounded ones would be this short with a probability below 10^-6."""


class Grain(NamedTuple):
    """How finely values were transported.

    Attributes:
        kind: ``exact`` (binary, as computed), ``float32`` (shortest or 9-digit decimals of float32, which restore it
            exactly), ``significant`` (rounded to `digits` significant digits) or ``decimals`` (to `decimals`).
        digits: most significant digits of any value.
        decimals: most decimals of any value.
        bits: significant bits of the values: up to 8 bfloat16, up to 11 float16, up to 24 float32.
        values: distinct values looked at.
        one_decade: fixed digits and fixed decimals are the same thing for these values.
    """

    kind: Literal["exact", "float32", "significant", "decimals"]
    digits: int
    decimals: int
    bits: int
    values: int
    one_decade: bool = False

    @property
    def rounded(self) -> bool:
        """Whether something was lost."""
        return self.kind in ("significant", "decimals")


def grain_of(values: Floats) -> Grain:
    """Detects rounding.

    1. Values of at most 24 significant bits are binary numbers and not rounded decimals, however short they look: a
       bfloat16 such as -0.73046875 has few decimals, but of decimals rounded to d places only one in 5^d is binary.
    2. Otherwise, if the shortest decimal form of a value has more than 15 digits, the values are float64 as computed.
    3. Otherwise the values are decimals, if so many short forms are no chance (`SHORT_BY_CHANCE`, `LEAST_EVIDENCE`).
    4. Decimals that have 9 digits and are just the decimal form of a float32 lose nothing.
    5. The others were rounded: to decimals, if more values use all decimals than use all significant digits; rounding
       leaves a zero in the last place of one value in ten.

    Args:
        values: (n,) log-probabilities; zeros, NaN, infinities and the clamp of vLLM's endpoints say nothing.
    """
    told = values[np.isfinite(values) & (values != 0) & (values > CLAMP)]
    distinct = np.unique(np.abs(told))
    if len(distinct) > MOST_VALUES:
        distinct = distinct[np.linspace(0, len(distinct) - 1, MOST_VALUES).astype(np.int64)]
    bits = significant_bits(distinct)
    if bits <= FLOAT32_BITS:
        return Grain("exact", 0, 0, bits, len(distinct))
    shapes = np.array([decimal_shape(value) for value in distinct.tolist()], dtype=np.int64)
    digits, decimals = (int(most) for most in shapes.max(axis=0))
    evidence = float((SHORT_BY_CHANCE - shapes[:, 0]).sum())
    kind: Literal["exact", "float32", "significant", "decimals"]
    if digits > MOST_DIGITS or evidence < LEAST_EVIDENCE:
        kind = "exact"
    elif digits == FLOAT32_DIGITS and _is_float32_text(distinct):
        kind = "float32"
    else:
        filled = (shapes == (digits, decimals)).mean(axis=0)
        kind = "significant" if filled[0] >= filled[1] else "decimals"
    one_decade = len(np.unique(shapes[:, 0] - shapes[:, 1])) == 1
    return Grain(kind, digits, decimals, bits, len(distinct), one_decade)


def significant_bits(values: Floats) -> int:
    """The most bits, from the first to the last that is set, of any of the positive finite values; 0 for none."""
    if len(values) == 0:
        return 0
    mantissas = (np.frexp(values)[0] * 2.0**53).astype(np.int64)
    lowest = mantissas & -mantissas
    return 53 - int(np.log2(lowest.min()))


def decimal_shape(value: float) -> tuple[int, int]:
    """Significant digits and decimals of the shortest decimal form that gives this positive float64 back."""
    mantissa, _, exponent = repr(value).partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = fraction.rstrip("0")
    digits = (whole + fraction).lstrip("0")
    decimals = len(fraction) - int(exponent or 0)
    return len(digits.rstrip("0")), max(0, decimals)


def half_unit(values: Floats, grain: Grain) -> Floats:
    """Half a unit of the last digit that was transported, at the magnitude of each value; 0 where nothing was lost."""
    if grain.kind == "decimals":
        return np.full(values.shape, 0.5 * 10.0**-grain.decimals)
    if grain.kind != "significant":
        return np.zeros(values.shape)
    magnitude = np.abs(values)
    exponent = np.floor(np.log10(magnitude, out=np.zeros(values.shape), where=magnitude > 0))
    return np.asarray(np.where(magnitude > 0, 0.5 * 10.0 ** (exponent - grain.digits + 1), 0.0))


def _is_float32_text(values: Floats) -> bool:
    single = values.astype(np.float32)
    shortest = all(float(str(near)) == value for near, value in zip(single, values.tolist(), strict=True))
    return shortest or all(float(f"{near:.9g}") == value for near, value in zip(single, values.tolist(), strict=True))
