"""Paired differences: the same rows, answered twice. Whether a score moved, by how much, and what could be seen.

All intervals are two-sided at 95 %, seeded, and independent of the order of the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from proctor.tasks.statistics import CONFIDENCE, RESAMPLES, wilson

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

POWER = 0.8
"""How often a difference of the size that `detectable` names is seen."""

_SEED = 20_231
_DRAWS_AT_ONCE = 1 << 21
_TAILS = (50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE))  # percent
_Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
_Z_POWER = NormalDist().inv_cdf(POWER)


def mcnemar(worse: int, better: int) -> float:
    """Exact two-sided p-value that the rows which changed are as likely to get worse as better; 1 if none changed.

    min(1, 2 P(X <= min(worse, better))) for X binomial with n = worse + better and 1/2: rows that did not change say
    nothing about the direction (Q. McNemar 1947, Psychometrika 12, 153-157, in its exact form). For scores that are no
    marks this is the sign test.
    """
    n, fewer = worse + better, min(worse, better)
    logs = [_log_choose(n, k) - n * math.log(2) for k in range(fewer + 1)]
    return min(1.0, 2 * math.fsum(math.exp(log) for log in logs))


def change_bounds(change: Floats, rounds: Integers, span: float) -> tuple[float, float]:
    """Percentile bootstrap by row of the mean change (Efron, Tibshirani 1993, "An Introduction to the Bootstrap").

    If all rows changed alike (mostly: not at all), resamples show no spread, which says nothing about rows not seen.
    Then as many rows as Wilson's bound does not exclude may have changed by the whole span of the score.
    Where few rows changed, resamples show too little: four rows that all got worse would exclude that nothing changed,
    which their exact test does not. So a row that gained the whole span and one that lost it are drawn with the others
    (the two pseudo-rows of Agresti, Min 2005, Statistics in Medicine 24, 729-740, spread over as many cells).

    Args:
        change: (rows,) sum over its rounds of what a row's score changed by.
        rounds: (rows,) how many rounds that are.
        span: by how much a score can change.
    """
    mean = float(change.sum() / rounds.sum())
    means = change / rounds
    if means.min() == means.max():
        reach = span * (wilson(0, len(change)).high or 1.0)
        return max(-span, mean - reach), min(span, mean + reach)
    most = int(rounds.max())
    change, rounds = np.append(change, (span * most, -span * most)), np.append(rounds, (most, most))
    n, rng = len(change), np.random.default_rng(_SEED)
    drawn = []
    at_once = max(1, _DRAWS_AT_ONCE // n)
    for start in range(0, RESAMPLES, at_once):
        rows = rng.integers(n, size=(min(at_once, RESAMPLES - start), n))
        drawn.append(change[rows].sum(axis=1) / rounds[rows].sum(axis=1))
    low, high = np.percentile(np.concatenate(drawn), _TAILS)
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class Moments:
    """Sums over units (rows, or clusters of rows) that are enough for the mean change and its standard error.

    Attributes:
        units: how many.
        change, rows: sums of each unit's summed change and of its rows.
        change2, change_rows, rows2: sums of squares and products of these.
        most: rows of the largest unit.
        span: by how much a row's score can change.
    """

    units: int
    change: float
    rows: float
    change2: float
    change_rows: float
    rows2: float
    most: float
    span: float

    @property
    def mean(self) -> float:
        """Mean change of a row."""
        return self.change / self.rows

    @property
    def centre_and_error(self) -> tuple[float, float]:
        """Mean and standard error with the two pseudo-rows of `change_bounds`.

        Ratio estimator with the units as clusters: sum (c - r m)² k / (k - 1) / (sum m)², r = sum c / sum m
        (W. G. Cochran 1977, "Sampling Techniques", section 6.3); with one row a unit the usual error of a mean.
        """
        gained = self.span * self.most
        units, rows = self.units + 2, self.rows + 2 * self.most
        centre = self.change / rows
        change2, rows2 = self.change2 + 2 * gained * gained, self.rows2 + 2 * self.most * self.most
        spread = max(0.0, change2 - 2 * centre * self.change_rows + centre * centre * rows2)
        return centre, math.sqrt(units / (units - 1) * spread) / rows

    def normal_bounds(self) -> tuple[float, float]:
        """Normal interval of the mean change, for many units."""
        centre, error = self.centre_and_error
        return centre - _Z * error, centre + _Z * error

    def detectable(self) -> float:
        """The smallest true difference that rows like these show in 80 % of the cases, at 95 % confidence.

        (z(0.975) + z(0.8)) · standard error of the paired difference (J. Cohen 1988, "Statistical Power Analysis";
        for evaluations E. Miller 2024, "Adding Error Bars to Evals", arXiv 2411.00640, section 5).
        """
        return (_Z + _Z_POWER) * self.centre_and_error[1]


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
