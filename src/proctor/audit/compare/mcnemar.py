"""Whether as many rows got better as got worse."""

from __future__ import annotations

import math


def mcnemar(worse: int, better: int) -> float:
    """Exact two-sided p-value that the rows which changed are as likely to get worse as better; 1 if none changed.

    min(1, 2 P(X <= min(worse, better))) for X binomial with n = worse + better and 1/2: rows that did not change say
    nothing about the direction (Q. McNemar 1947, Psychometrika 12, 153-157, in its exact form).
    """
    n, fewer = worse + better, min(worse, better)
    logs = [_log_choose(n, k) - n * math.log(2) for k in range(fewer + 1)]
    return min(1.0, 2 * math.fsum(math.exp(log) for log in logs))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
