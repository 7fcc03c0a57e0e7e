"""Whether the task's score moved: by how much, in how many rows, and in which direction."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proctor.audit.compare.intervals import rate
from proctor.audit.compare.mcnemar import mcnemar
from proctor.audit.compare.pairs import Pair

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

RESAMPLES = 2_000
_SEED = 20_231
_DRAWS_AT_ONCE = 1 << 21
_TAILS = (2.5, 97.5)  # percent


class Scores(NamedTuple):
    """The fields of `Comparison` of the same names; all None without scores."""

    score_change: tuple[float, float, float] | None
    score_flips: tuple[int, int] | None
    mcnemar: float | None


def scores_of(pairs: Iterable[Pair]) -> Scores:
    """Compares the scores of all pairs that have one on both sides.

    A row and all its rounds are one unit: the interval draws rows, and a row got worse or better by its mean over the
    rounds.
    """
    marked = sorted((pair.arm.row_id, pair.arm.score, pair.against.score) for pair in pairs
                    if _is_number(pair.arm.score) and _is_number(pair.against.score))  # fmt: skip
    if not marked:
        return Scores(None, None, None)
    table = np.array(marked, dtype=np.float64)
    _, row = np.unique(table[:, 0], return_inverse=True)
    rounds = np.bincount(row)
    change = np.bincount(row, weights=table[:, 1] - table[:, 2]).astype(np.float64)
    worse, better = int(np.count_nonzero(change < 0)), int(np.count_nonzero(change > 0))
    low, high = change_bounds(change, rounds, _span(table[:, 1:]))
    return Scores((float(change.sum() / rounds.sum()), low, high), (worse, better), mcnemar(worse, better))


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
        reach = span * rate(0, len(change)).high
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


def _is_number(score: float | None) -> bool:
    return score is not None and math.isfinite(score)


def _span(scores: Floats) -> float:
    """1 for scores between 0 and 1; what was seen for others."""
    low, high = float(scores.min()), float(scores.max())
    return 1.0 if low >= 0 and high <= 1 else high - low
