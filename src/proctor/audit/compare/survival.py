"""How long two answers stay equal: a Kaplan-Meier curve, because a row that ends undiverged says nothing of later."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from proctor.audit.compare.intervals import Z, rate
from proctor.audit.model import Survival


def survival_of(lengths: NDArray[np.int64], parted: NDArray[np.bool_], *, per_row: float = 1.0) -> Survival:
    """Share of rows that are still equal after each position at which some diverge.

    S(p) is the product over positions q <= p of 1 - d/n, with d divergences among the n rows that came to q undiverged
    (E. L. Kaplan, P. Meier 1958, JASA 53, 457-481). Its variance is Greenwood's, S² sum d/(n(n-d)); the bounds are
    those of log(-log S), which stay between 0 and 1 (Kalbfleisch, Prentice 2002, "The Statistical Analysis of Failure
    Time Data", section 1.4). Where no row is left the lower bound is 0, and the upper one the lower of the last upper
    bound and Wilson's for none of the n.

    Args:
        lengths: (pairs,) leading units that are equal: the position of the divergence of those that part.
        parted: (pairs,) whether they part there; the others are censored after that many positions.
        per_row: pairs a row, where rounds repeat the rows: they are not independent, so the variance is that of one a
            row.
    """
    positions = np.unique(lengths[parted])
    divergences = np.array([np.count_nonzero(lengths[parted] == p) for p in positions], dtype=np.int64)
    at_risk = np.array([np.count_nonzero(lengths > p) for p in positions], dtype=np.int64) + divergences
    surviving, low, high = [], [], []
    share, greenwood, last = 1.0, 0.0, 1.0
    for d, n in zip(divergences.tolist(), at_risk.tolist(), strict=True):
        share *= 1 - d / n
        if d < n:
            greenwood += per_row * d / (n * (n - d))
            bounds = _log_log(share, greenwood)
        else:
            bounds = (0.0, min(last, rate(0, max(1, round(n / per_row))).high))
        last = bounds[1]
        surviving.append(share)
        low.append(bounds[0])
        high.append(bounds[1])
    return Survival(tuple(positions.tolist()), tuple(surviving), tuple(low), tuple(high), tuple(at_risk.tolist()))


def _log_log(share: float, greenwood: float) -> tuple[float, float]:
    """S^exp(+-z se), where se² is Greenwood's sum over log² S. Source: as in `survival_of`."""
    reach = math.exp(Z * math.sqrt(greenwood) / -math.log(share))
    return share**reach, share ** (1 / reach)
