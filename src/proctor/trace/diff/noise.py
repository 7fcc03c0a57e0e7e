"""What repeated launches of the same work say about chance: differences below it are no evidence.

Only what happened *within* the two windows is known. How much two captures of the same program differ from each other
cannot be seen in one capture each, so the floor here is the least that must be exceeded, not all that could be chance.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SIGMAS = 3.29
"""Half-width of the interval in standard errors: 99.9 %, because dozens of kernels are looked at in one diff."""

RESOLUTION = 32
"""Nanoseconds between two ticks of a GPU's timestamps: in real captures nearly all durations are multiples of it."""

FEWEST = 6
"""With fewer launches on a side, the interval of a median says nothing."""


class Verdict(StrEnum):
    """What may be said of a difference per launch."""

    BEYOND = "beyond noise"
    WITHIN = "within noise"
    TAIL = "single launches"
    """The usual launch takes the same on both sides; the mean differs beyond its own interval."""
    FEW = "too few launches"
    ONE_SIDE = "one side only"


class Spread(NamedTuple):
    """Repeated launches of the same shape on one side, ns."""

    launches: int
    median: float
    mean: float
    median_error: float
    """Standard error of the median."""
    mean_error: float
    drift: float
    """How far the median of the last third of the launches is from that of the first third."""


class Shift(NamedTuple):
    """The difference of a launch between two sides, ns; and how much of it could be chance."""

    typical: float
    """Difference of the medians."""
    floor: float
    """What a difference of medians must exceed: its interval, the drift within either window and the clock's tick."""
    mean: float
    mean_floor: float


def spread(durations: NDArray[np.int64]) -> Spread:
    """Describes launches, given in the order they ran; there is at least one."""
    import numpy as np

    count = len(durations)
    median, mean = float(np.median(durations)), float(np.mean(durations))
    if count < FEWEST:
        return Spread(count, median, mean, math.inf, math.inf, 0.0)
    third = count // 3
    drift = abs(float(np.median(durations[-third:])) - float(np.median(durations[:third])))
    mean_error = float(np.std(durations, ddof=1)) / math.sqrt(count)
    return Spread(count, median, mean, _median_error(np.sort(durations)), mean_error, drift)


def shift(a: Spread, b: Spread) -> Shift:
    """The difference of B's launches from A's."""
    floor = SIGMAS * math.hypot(a.median_error, b.median_error)
    mean_floor = SIGMAS * math.hypot(a.mean_error, b.mean_error)
    drift = max(a.drift, b.drift)
    return Shift(
        b.median - a.median, max(floor, drift, RESOLUTION), b.mean - a.mean, max(mean_floor, drift, RESOLUTION)
    )


def verdict(found: Shift) -> Verdict:
    """What the difference can bear."""
    if math.isinf(found.floor):
        return Verdict.FEW
    if abs(found.typical) > found.floor:
        return Verdict.BEYOND
    return Verdict.TAIL if abs(found.mean) > found.mean_floor else Verdict.WITHIN


def _median_error(ordered: NDArray[np.int64]) -> float:
    """Standard error of a sample's median, whatever its distribution.

    Source: Price & Bonett, "Estimating the variance of the sample median", J. Stat. Comput. Simul. 68 (2001): the
    distance of two order statistics ``c`` from either end, ``c = (n + 1) / 2 - sqrt(n)``, over twice the normal
    quantile of their binomial coverage; and Bonett & Price, Psychological Methods 7 (2002), for differences of medians.
    """
    count = len(ordered)
    c = max(1, round((count + 1) / 2 - math.sqrt(count)))
    return float(ordered[count - c] - ordered[c - 1]) / (2 * _quantile(count, c))


def _quantile(count: int, c: int) -> float:
    """Standard errors that the `c`-th value from either end lies from the median."""
    if count > 200:  # by the normal approximation the definition of c makes it 2
        return 2.0
    from statistics import NormalDist

    tail = sum(math.comb(count, i) for i in range(c)) / 2 ** (count - 1)
    return NormalDist().inv_cdf(1 - tail / 2)
