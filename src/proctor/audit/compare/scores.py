"""Whether the task's score moved: by how much, in how many rows, and in which direction."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from proctor.audit.compare.pairs import Pair
from proctor.tasks.differences import Floats, change_bounds, mcnemar


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


def _is_number(score: float | None) -> bool:
    return score is not None and math.isfinite(score)


def _span(scores: Floats) -> float:
    """1 for scores between 0 and 1; what was seen for others."""
    low, high = float(scores.min()), float(scores.max())
    return 1.0 if low >= 0 and high <= 1 else high - low
