"""How much the time of equal launches differs: spread, outliers, and whether it drifts.

Robust statistics throughout, since one launch that waits for another process would spoil means and deviations.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Times = NDArray[np.int64]

OUTLIER_DISTANCE = 5.0
"""Distance from the median, in scales, from which a launch is an outlier."""
LEAST_FOR_OUTLIERS = 8
LEAST_FOR_DRIFT = 10
_FLOOR_SHARE, _FLOOR_NS = 0.01, 100.0  # equal launches have no spread: clocks of GPUs tick in steps of up to 100 ns
_BINS = 64
_MAD_TO_DEVIATION = 1.4826  # of a normal distribution
_NORMAL_95 = 1.959964

OUTLIERS_IN_WORDS = (
    f"further from the median than {OUTLIER_DISTANCE:g} x the larger of 1.4826 x MAD, {_FLOOR_SHARE:.0%} of the "
    f"median and {_FLOOR_NS:g} ns"
)


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Times in ns. `iqr_share` is the distance of the quartiles, of the median."""

    count: int
    total: int
    min: int
    p25: float
    median: float
    p75: float
    p95: float
    max: int
    iqr_share: float


class Outliers(msgspec.Struct, frozen=True, kw_only=True):
    """Launches whose time is far from the median of equal launches.

    Attributes:
        slow: launches slower than `above`.
        fast: launches faster than `below`.
        above: ns.
        below: ns; negative where nothing can be too fast.
        lost: ns that the slow ones took beyond the median.
    """

    slow: int
    fast: int
    above: float
    below: float
    lost: float


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """How the time of a launch changed from the first to the last of equal launches.

    The slope is Theil and Sen's, over medians of up to 64 parts with equally many launches in order of time; its
    interval is Sen's (J. Am. Stat. Assoc. 63, 1968). Neighbouring launches are rarely independent: the interval is
    somewhat too narrow.

    Attributes:
        change: ns, from the first launch to the last.
        share: `change` of the median.
        low: lower end of the 95 % interval of `share`.
        high: upper end.
        real: the interval leaves out 0, and the change is larger than what a clock's steps could make.
    """

    change: float
    share: float
    low: float
    high: float
    real: bool


def spread_of(times: Times) -> Spread:
    """The spread of at least one time."""
    import numpy as np

    p25, median, p75, p95 = (float(value) for value in np.percentile(times, (25, 50, 75, 95)))
    return Spread(
        count=len(times),
        total=int(times.sum()),
        min=int(times.min()),
        p25=p25,
        median=median,
        p75=p75,
        p95=p95,
        max=int(times.max()),
        iqr_share=(p75 - p25) / median if median else 0.0,
    )


def outliers_of(times: Times) -> Outliers | None:
    """Outliers on either side; None where there are too few launches to say."""
    import numpy as np

    if len(times) < LEAST_FOR_OUTLIERS:
        return None
    median = float(np.median(times))
    deviation = _MAD_TO_DEVIATION * float(np.median(np.abs(times - median)))
    reach = OUTLIER_DISTANCE * max(deviation, _FLOOR_SHARE * median, _FLOOR_NS)
    slow = times[times > median + reach]
    return Outliers(
        slow=len(slow),
        fast=int((times < median - reach).sum()),
        above=median + reach,
        below=median - reach,
        lost=float((slow - median).sum()),
    )


def drift_of(starts: Times, times: Times) -> Drift | None:
    """Drift of launches in order of their start; None where there are too few, or all began at once."""
    import numpy as np

    span = int(starts[-1] - starts[0]) if len(starts) else 0
    median = float(np.median(times)) if len(times) else 0.0
    if len(times) < LEAST_FOR_DRIFT or span <= 0 or median <= 0:
        return None
    parts = min(_BINS, len(times))
    edges = np.linspace(0, len(times), parts + 1).astype(int)
    pairs = list(itertools.pairwise(edges))
    x = np.array([float(np.median(starts[low:high] - starts[0])) for low, high in pairs])
    y = np.array([float(np.median(times[low:high])) for low, high in pairs])
    first, second = np.triu_indices(parts, k=1)
    apart = x[second] > x[first]
    slopes = np.sort((y[second] - y[first])[apart] / (x[second] - x[first])[apart])
    if not len(slopes):
        return None
    low, middle, high = (slope * span for slope in _sen(slopes, parts))
    beyond_clock = abs(middle) > max(_FLOOR_SHARE * median, _FLOOR_NS)
    return Drift(
        change=middle,
        share=middle / median,
        low=low / median,
        high=high / median,
        real=bool(low * high > 0 and beyond_clock),
    )


def _sen(slopes: NDArray[np.float64], points: int) -> tuple[float, float, float]:
    """Sen's interval of the median of sorted slopes: (lower end, median, upper end), 95 %."""
    import numpy as np

    reach = _NORMAL_95 * math.sqrt(points * (points - 1) * (2 * points + 5) / 18)  # of Kendall's S, without ties
    low = max(0, int((len(slopes) - reach) / 2))
    high = min(len(slopes) - 1, math.ceil((len(slopes) + reach) / 2))
    return float(slopes[low]), float(np.median(slopes)), float(slopes[high])
