"""Shares with their 95 % bounds, where the rows are independent and what lies inside a row is not."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from proctor.audit.model import Rate
from proctor.tasks.statistics import CONFIDENCE, wilson

Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
NOTHING = Rate(0, 0, 0.0, 1.0)
"""The rate of nothing: it excludes nothing."""


def rate(hits: int, of: int) -> Rate:
    """A share of independent units with Wilson's bounds (`proctor.tasks.statistics.wilson`)."""
    low, high, method = wilson(hits, of)
    return NOTHING if low is None or high is None else Rate(hits, of, low, high, method)


def rate_by_row(rows: NDArray[np.int64], hit: NDArray[np.bool_]) -> Rate:
    """A share of units of which several may belong to one row: tokens of an answer, rounds of a row.

    Wilson's bounds at the effective sample size: the number of independent units whose variance is that of the share
    with the rows as clusters (ratio estimator; Kish 1965, "Survey Sampling"; Franco, Little, Louis, Slud 2019, Journal
    of Survey Statistics and Methodology 7, 334-364, find these bounds the best of their kind for shares near 0 and 1,
    where a percentile bootstrap by row is too narrow). A share of exactly 0 or 1 shows no spread: then each row counts
    once.

    Args:
        rows: (units,) row that each unit belongs to.
        hit: (units,) whether it counts.
    """
    of, hits = len(rows), int(hit.sum())
    _, cluster = np.unique(rows, return_inverse=True)
    sizes = np.bincount(cluster)
    if of == 0 or sizes.max() == 1:
        return rate(hits, of)
    effective = _effective_size(np.bincount(cluster, weights=hit).astype(np.float64), sizes)
    low, high = _wilson_share(hits / of, effective)
    return Rate(hits, of, 0.0 if hits == 0 else low, 1.0 if hits == of else high, "wilson, by row")


def not_excluded(found: Rate) -> float:
    """The largest share of misses that the 95 % bounds do not exclude: for 490 of 490 it is 0.78 %, for nothing all.

    Close to the rule of three (3/n: Hanley, Lippman-Hand 1983, JAMA 249, 1743-1745), which is one-sided.
    """
    return 1.0 - found.low


def _effective_size(hits: NDArray[np.float64], sizes: NDArray[np.int64]) -> float:
    """How many independent units would know the share as well; between 1 and the units there are.

    Args:
        hits: (rows,) units of each row that count.
        sizes: (rows,) units of each row.
    """
    clusters, of = len(sizes), float(sizes.sum())
    share = hits.sum() / of
    spread = float(np.square(hits - share * sizes).sum())
    if share in (0.0, 1.0) or clusters < 2 or spread == 0.0:
        return float(clusters)
    variance = clusters / (clusters - 1) * spread / of**2
    return float(np.clip(share * (1 - share) / variance, 1.0, of))


def _wilson_share(share: float, n: float) -> tuple[float, float]:
    """Wilson's bounds for a share of `n` units, whole or not."""
    scale = 1 + Z * Z / n
    centre = (share + Z * Z / (2 * n)) / scale
    half = Z / scale * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)
