"""Intervals. All are two-sided at 95 %, seeded, and independent of the order of the rows."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
RESAMPLES = 2_000
BOOTSTRAP_ROWS = 10_000
"""Up to so many rows the interval of a mean is bootstrapped; above, the normal one is as good and costs nothing."""

_Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
_TAILS = (50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE))  # percent
_SEED = 20_231
_DRAWS_AT_ONCE = 1 << 20


class Interval(NamedTuple):
    """Bounds of an interval and how it was made; the bounds are None when none can be given."""

    low: float | None
    high: float | None
    method: str


NO_INTERVAL = Interval(None, None, "")


def wilson(successes: int, n: int) -> Interval:
    """Wilson's score interval for a proportion.

    Centre (p + z²/2n) / (1 + z²/n), half width z / (1 + z²/n) · sqrt(p(1-p)/n + z²/4n²).
    E. B. Wilson (1927), "Probable inference, the law of succession, and statistical inference", JASA 22, 209-212.
    It keeps its coverage for small n and for shares at 0 or 1 (Brown, Cai, DasGupta 2001, Statistical Science 16).
    """
    if n == 0:
        return NO_INTERVAL
    share, z2 = successes / n, _Z * _Z
    scale = 1 + z2 / n
    centre = (share + z2 / (2 * n)) / scale
    half = _Z / scale * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return Interval(low, high, "wilson")


def macro_f1(counts: NDArray[np.int64]) -> float | None:
    """Unweighted mean over the labels of F1 = 2 TP / (2 TP + FP + FN); None when there are no counts.

    Args:
        counts: (labels, labels), target by prediction. Labels that occur neither as target nor as prediction are left
            out of the mean; one that occurs but is never right has F1 0. This is scikit-learn's ``f1_score`` with
            ``average="macro"``.
    """
    if counts.sum() == 0:
        return None
    diagonal, marginals = np.diagonal(counts), counts.sum(axis=0) + counts.sum(axis=1)
    return float(_mean_f1(diagonal[None, :], marginals[None, :])[0])


def macro_f1_interval(counts: NDArray[np.int64]) -> Interval:
    """Percentile bootstrap of `macro_f1`: rows are drawn again with replacement, which for a confusion matrix is one
    multinomial draw of its cells, so the cost depends on the labels and not on the rows.

    B. Efron, R. Tibshirani (1993), "An Introduction to the Bootstrap", chapter 13. When every prediction was right no
    resample can be worse; the bounds are then Wilson's for the accuracy.
    """
    n, right = int(counts.sum()), int(np.trace(counts))
    if n == 0:
        return NO_INTERVAL
    if right == n:
        return wilson(right, n)
    targets, predictions = np.nonzero(counts)
    share = counts[targets, predictions] / n
    draws = np.random.default_rng(_SEED).multinomial(n, share, size=RESAMPLES)
    # One column a label: how often a cell counts for its diagonal, and for the sum of its row and its column.
    labels = np.eye(len(counts), dtype=np.int64)
    on_diagonal = labels[targets] * (targets == predictions)[:, None]
    in_marginals = labels[targets] + labels[predictions]
    low, high = np.percentile(_mean_f1(draws @ on_diagonal, draws @ in_marginals), _TAILS)
    return Interval(float(low), float(high), "bootstrap")


def bootstrap_mean(values: NDArray[np.float64]) -> Interval:
    """Percentile bootstrap of a mean (Efron, Tibshirani 1993, chapter 13); for skewed values such as distances.

    No interval for fewer than two rows, or when all values are equal: resamples then show no spread, which says nothing
    about rows not seen.
    """
    if len(values) < 2 or values.min() == values.max():
        return NO_INTERVAL
    ordered = np.sort(values)
    rng = np.random.default_rng(_SEED)
    at_once = max(1, _DRAWS_AT_ONCE // len(ordered))
    means = [
        ordered[rng.integers(len(ordered), size=(min(at_once, RESAMPLES - start), len(ordered)))].mean(axis=1)
        for start in range(0, RESAMPLES, at_once)
    ]
    low, high = np.percentile(np.concatenate(means), _TAILS)
    return Interval(float(low), float(high), "bootstrap")


def normal_mean(mean: float, deviation: float, n: int) -> Interval:
    """Normal interval of a mean, mean ± z·s/√n (central limit theorem), for many rows; `deviation` is the sample's."""
    if n < 2 or deviation == 0:
        return NO_INTERVAL
    half = _Z * deviation / math.sqrt(n)
    return Interval(mean - half, mean + half, "normal")


def _mean_f1(diagonal: NDArray[np.int64], marginals: NDArray[np.int64]) -> NDArray[np.float64]:
    """Macro-F1 of each draw, from (draws, labels) arrays: F1 = 2 TP / (row + column sum), absent labels left out."""
    seen = marginals > 0
    f1 = np.divide(2.0 * diagonal, marginals, out=np.zeros(diagonal.shape), where=seen)
    return np.asarray(f1.sum(axis=1) / np.maximum(seen.sum(axis=1), 1))
