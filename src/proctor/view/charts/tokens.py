"""The tokens of an answer, each with how likely the model held it to be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

MOST_TOKENS = 1_000
SHADES = (0.99, 0.9, 0.5, 0.1)
"""Probabilities from which on a token is of shade 0, 1, 2 or 3; the least likely are of shade 4."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token: its id, if that is known, and how likely it was: `shade` as in `SHADES`, `percent` in words. Without a
    probability (None, NaN) both say so."""

    number: int | None
    shade: int | None
    percent: str
    title: str


@dataclass(frozen=True, slots=True)
class Tokens:
    """The first `MOST_TOKENS` of an answer.

    Attributes:
        left_out: how many more there are.
        mean: mean log-probability (natural) of all that have one; None if none has.
        least: the least likely one that is shown, None likewise.
    """

    shown: list[Token]
    left_out: int
    mean: float | None
    least: Token | None

    @property
    def legend(self) -> list[tuple[int, str]]:
        """Each shade in words."""
        between = [f"{100 * low:g} to {100 * high:g} %" for high, low in pairwise(SHADES)]
        words = [f"{100 * SHADES[0]:g} % and more", *between, f"below {100 * SHADES[-1]:g} %"]
        return list(enumerate(words))


def tokens(ids: Sequence[int | None], logprobs: Sequence[float | None], left_out: int = 0) -> Tokens | None:
    """Token ids and their natural log-probabilities, position by position; None without any of the latter.

    Args:
        ids: may be fewer than `logprobs`, then the rest have none.
        logprobs: null or NaN where the engine told none.
        left_out: how many more tokens there are that were not read.
    """
    if not logprobs:
        return None
    pairs = [(ids[place] if place < len(ids) else None, _sound(value)) for place, value in enumerate(logprobs)]
    known = [value for _, value in pairs if value is not None]
    shown = [_token(place + 1, number, value) for place, (number, value) in enumerate(pairs[:MOST_TOKENS])]
    told = [(value, token) for token, (_, value) in zip(shown, pairs, strict=False) if value is not None]
    least = min(told, key=lambda pair: pair[0])[1] if told else None
    mean = sum(known) / len(known) if known else None
    return Tokens(shown, len(pairs) - len(shown) + left_out, mean, least)


def _sound(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else min(float(value), 0.0)


def _token(place: int, number: int | None, value: float | None) -> Token:
    name = f"token {place}" + ("" if number is None else f", id {number}")
    if value is None:
        return Token(number, None, "?", f"{name}: no log-probability")
    probability = math.exp(value)
    shade = next((shade for shade, least in enumerate(SHADES) if probability >= least), len(SHADES))
    percent = "<0.1 %" if probability < 0.001 else f"{100 * probability:.3g} %"
    return Token(number, shade, percent, f"{name}: {percent}, log-probability {value:.4g}")
