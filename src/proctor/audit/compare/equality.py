"""Whether two log-probabilities are equal, at the precision that reached us; and how far apart, in float32 units."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proctor.audit.compare.grain import CLAMP, FLOAT32_BITS, FLOAT32_DIGITS, Grain, grain_of, half_unit

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

ULP_FLOOR = 2.0**-6
"""Smallest magnitude (nats) at which distances in units in the last place are counted. A log-probability is a small
difference of logits of about 10, whose own rounding is 1e-6: below this floor a float32 unit is under 2e-9, so the
count would tell the magnitude and not the error."""
FEW_VALUES = 4


class Equality(NamedTuple):
    """What is equal, and how well that is known.

    Attributes:
        equal: (n,) whether the two values are equal, or can have come of one value before they were rounded.
        bitwise: whether equal means equal as computed.
        digits: significant digits that were transported on the coarser side; None where nothing was lost.
        decimals: decimals, where those were fixed.
        unit: half a unit of the last transported digit (nats), the median over the values; 0 where nothing was lost.
        bits: significant bits of the values on the coarser side, where they were sent exactly; 0 where there are none.
    """

    equal: Flags
    bitwise: bool
    digits: int | None
    decimals: int | None
    unit: float
    bits: int


def equality(arm: Floats, against: Floats) -> Equality:
    """Compares values as they were transported; 0 and -0 are equal.

    Two sides that were rounded in the same way are equal if the rounded values are. If only one was, or if they were
    rounded differently, the values are equal if they are no further apart than rounding takes them.

    Args:
        arm, against: (n,) log-probabilities without NaN.
    """
    ours, theirs = _told_apart(grain_of(arm), grain_of(against))
    if ours.rounded or theirs.rounded:
        return _rounded_equality(arm, against, ours, theirs)
    bits = min((grain.bits for grain in (ours, theirs) if grain.values), default=0)
    if "float32" not in (ours.kind, theirs.kind):
        return Equality(arm == against, True, None, None, 0.0, bits)
    # Decimals of a float32 name it without being it: -0.1 for -0.10000000149.
    whole = all(grain.kind == "float32" or grain.bits <= FLOAT32_BITS for grain in (ours, theirs))
    same = arm.astype(np.float32) == against.astype(np.float32)
    return Equality(np.asarray(same), whole, None if whole else FLOAT32_DIGITS, None, 0.0, FLOAT32_BITS)


def unclamped(arm: Floats, against: Floats) -> tuple[Floats, Floats, bool]:
    """The values, with all that lie at or below the clamp made one, if either side shows that there was a clamp.

    Returns:
        Both sides, and whether a clamp was met.
    """
    if not (np.any(arm == CLAMP) or np.any(against == CLAMP)):
        return arm, against, False
    return np.maximum(arm, CLAMP), np.maximum(against, CLAMP), True


def ulp_distance(arm: Floats, against: Floats) -> NDArray[np.int64]:
    """How many float32 lie from one value to the other, for finite values; 0 and -0 are the same one.

    The bits of floats of one sign are ordered as integers (IEEE 754), which makes this a difference.
    """
    return np.abs(_ordered(arm) - _ordered(against))


def above_floor(arm: Floats, against: Floats) -> Flags:
    """Where a distance in units in the last place means something."""
    return np.asarray(np.minimum(np.abs(arm), np.abs(against)) >= ULP_FLOOR)


def _ordered(values: Floats) -> NDArray[np.int64]:
    with np.errstate(over="ignore"):  # a server may tell any number; beyond float32 it is infinite
        bits = values.astype(np.float32).view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFF_FFFF), bits)


def _told_apart(ours: Grain, theirs: Grain) -> tuple[Grain, Grain]:
    """Grains of both sides; one and the same where nothing speaks for two ways of rounding."""
    if not (ours.rounded and theirs.rounded):
        return ours, theirs
    fewer, more = sorted((ours, theirs), key=lambda grain: grain.values)
    kind = fewer.kind if more.one_decade else more.kind
    places = [grain.decimals if kind == "decimals" else grain.digits for grain in (fewer, more)]
    coarser, finer = (fewer, more) if places[0] <= places[1] else (more, fewer)
    alike = places[0] == places[1] and (fewer.one_decade or fewer.kind == kind)
    # Very few values may all end in zeros by chance.
    if alike or coarser.values < FEW_VALUES:
        finer = finer._replace(kind=kind)
        return finer, finer
    return ours, theirs


def _rounded_equality(arm: Floats, against: Floats, ours: Grain, theirs: Grain) -> Equality:
    finite = np.isfinite(arm) & np.isfinite(against)
    larger = np.maximum(np.abs(arm), np.abs(against), out=np.zeros(arm.shape), where=finite)
    units = half_unit(larger, ours), half_unit(larger, theirs)
    equal = arm == against
    if ours != theirs:
        apart = np.subtract(arm, against, out=np.full(arm.shape, np.inf), where=finite)
        equal = equal | (np.abs(apart) <= (units[0] + units[1]) * (1 + 1e-9))
    middle = [float(np.median(unit)) if len(unit) else 0.0 for unit in units]
    coarser = ours if middle[0] >= middle[1] else theirs
    decimals = coarser.decimals if coarser.kind == "decimals" else None
    return Equality(np.asarray(equal), False, coarser.digits, decimals, max(middle), 0)
