"""The most likely token at a position, from a list that may be unsorted, tied or name a token twice."""

from __future__ import annotations

import math
from typing import NamedTuple

NO_TOKEN = -(1 << 63)
Top = tuple[tuple[int, float], ...]


class Leader(NamedTuple):
    """What leads at a position.

    Attributes:
        token: the most likely token; of several equally likely ones that with the smallest id; `NO_TOKEN` if unknown.
        margin: its log-probability minus that of the next token (nats); NaN if unknown, 0 in a tie.
        ties: all tokens that are as likely as it, where there are several.
    """

    token: int
    margin: float
    ties: frozenset[int] = frozenset()


UNKNOWN = Leader(NO_TOKEN, math.nan)


def leader(top: Top) -> Leader:
    """What leads in a list of tokens with their log-probabilities.

    Lists come most likely first, but some servers put the sampled token in front, or name it twice (vllm RFC #42259).
    """
    if len(top) > 1 and top[0][1] > top[1][1] and top[0][0] != top[1][0] and _descends(top):
        return Leader(top[0][0], top[0][1] - top[1][1])
    return _leader_of(ranked(top))


def ranked(top: Top) -> Top:
    """Each token once with its highest log-probability, most likely first, equal ones by id; without NaN."""
    best: dict[int, float] = {}
    for token, logprob in top:
        if not math.isnan(logprob):
            best[token] = max(logprob, best.get(token, -math.inf))
    return tuple(sorted(best.items(), key=lambda pair: (-pair[1], pair[0])))


def alike(one: Leader, other: Leader) -> bool | None:
    """Whether the same token leads on both sides; a token among equally likely ones counts. None if unknown."""
    if NO_TOKEN in (one.token, other.token):
        return None
    return one.token == other.token or bool((one.ties or {one.token}) & (other.ties or {other.token}))


def _descends(top: Top) -> bool:
    return len(top) == 2 or all(top[i][1] >= top[i + 1][1] for i in range(1, len(top) - 1))


def _leader_of(tokens: Top) -> Leader:
    if not tokens:
        return UNKNOWN
    first, highest = tokens[0]
    if len(tokens) == 1:
        return Leader(first, math.nan)
    if tokens[1][1] < highest:
        return Leader(first, highest - tokens[1][1])
    return Leader(first, 0.0, frozenset(token for token, logprob in tokens if logprob == highest))
