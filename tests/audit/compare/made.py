"""Observations for tests: a row with given tokens and log-probabilities, or whole arms drawn from a toy decoder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from proctor.audit.model import Observation

VOCABULARY = 64


def row(row_id: int, tokens: Sequence[int] = (), arm: str = "a", round: int = 0, **fields: Any) -> Observation:  # noqa: A002
    """One answer; its text spells the tokens."""
    fields.setdefault("text", " ".join(map(str, tokens)))
    return Observation(arm=arm, round=round, row_id=row_id, token_ids=tuple(tokens), **fields)


def rows(answers: Sequence[Sequence[int]], arm: str = "a", round: int = 0, **fields: Any) -> list[Observation]:  # noqa: A002
    """Answers of rows 0, 1, 2 ..."""
    return [row(number, tokens, arm, round, **fields) for number, tokens in enumerate(answers)]


def decoded(
    arm: str,
    *,
    rows: int = 40,
    length: int = 24,
    noise: float = 0.0,
    seed: int = 0,
    near_certain: float = 0.7,
    wrong: dict[tuple[int, int], float] | None = None,
    single: bool = True,
    top: int = 3,
) -> list[Observation]:
    """Greedy answers of a toy decoder whose logits, the same in every arm, are disturbed by Gaussian noise.

    Args:
        noise: standard deviation of what is added to every logit.
        seed: of the noise.
        near_certain: share of positions at which one token leads by far.
        wrong: by (row, position): what is taken off the logit of the token that should win there.
        single: log-probabilities are float32.
        top: how many tokens are told.
    """
    disturb, made = np.random.default_rng([seed, 1]), []
    for number in range(rows):
        tokens, logprobs, tops = [], [], []
        history = 0
        for position in range(length):
            logits = _logits(number, position, history, near_certain)  # shared: not changed in place
            best = int(logits.argmax())
            logits = logits + disturb.normal(size=VOCABULARY) * noise
            logits[best] -= (wrong or {}).get((number, position), 0.0)
            told = logits - np.log(np.exp(logits).sum())
            told = told.astype(np.float32).astype(np.float64) if single else told
            order = np.argsort(-told)[:top].tolist()
            tokens.append(order[0])
            logprobs.append(float(told[order[0]]))
            tops.append(tuple((token, float(told[token])) for token in order))
            history = (history * 31 + order[0]) % 9973
        made.append(row(number, tokens, arm, logprobs=tuple(logprobs), top=tuple(tops)))
    return made


@cache
def _logits(number: int, position: int, history: int, near_certain: float) -> np.ndarray:
    rng = np.random.default_rng([number, position, history])
    logits = rng.normal(size=VOCABULARY) * 2
    if rng.random() < near_certain:
        logits[rng.integers(VOCABULARY)] += 12
    return logits
