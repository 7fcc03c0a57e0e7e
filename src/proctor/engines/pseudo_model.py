"""A model made of hashes: greedy tokens with log-probabilities, the same for the same row, and errors where planted.

Every number is a function of the row (its id, prompt and images), the position and the tokens chosen so far. Logits
are exact in float64; a coarser number format adds an error of some units in the last place (ulp) of a logit of 4, and a
planted effect adds another one, as another order of summation does. Log-probabilities are the log-softmax of the sum,
rounded to float32. Some positions are near-ties, so a small error flips a small share of the tokens.
"""

from __future__ import annotations

import hashlib
import math
import random
import struct
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from proctor.engines.numerics import Effect, Numerics
from proctor.engines.sampling import row_seed
from proctor.rows import Request, Response
from proctor.rows.exchange import FinishReason

CANDIDATES = 8
"""Tokens of a position that have a probability of their own; the rest of the vocabulary shares what is left."""
LOGIT = 4.0
ULPS = {"auto": 2.0**-23, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7, "float64": 0.0}
"""Distance of neighbouring numbers of a format at 1."""
_TAIL = 2.0
"""The rest of the vocabulary together is so many nats below the least likely candidate."""


class Strike(NamedTuple):
    """An effect that hits a row: which one, and what makes it another one each time (empty: it is the same)."""

    number: int
    effect: Effect
    nonce: bytes = b""


class _Position(NamedTuple):
    """What may be chosen at a position.

    Attributes:
        ids: tokens, (CANDIDATES,).
        logprobs: theirs, as the engine finds them.
        other: log-probability of each token that is no candidate.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    other: float


class PseudoModel:
    """Answers rows.

    Args:
        numerics: what is planted.
        dtype: number format, of `ULPS`.
    """

    def __init__(self, numerics: Numerics, dtype: str) -> None:
        self._numerics = numerics
        self._dtype = dtype
        self._ulp = LOGIT * ULPS[dtype]

    def answer(self, request: Request, strikes: Sequence[Strike]) -> Response:
        """The answer to a row that is hit by `strikes`."""
        sampling = request.sampling
        blind = any(strike.effect.blind for strike in strikes)
        state = row_digest(replace(request, images=()) if blind else request, self._numerics.seed)
        own_length = self._length(state)
        count = len(sampling.forced) or min(own_length, sampling.max_tokens)
        tokens: list[int] = []
        logprobs: list[float] = []
        top: list[tuple[tuple[int, float], ...]] = []
        for step in range(count):
            found = self._position(state, step, strikes)
            token = sampling.forced[step] if sampling.forced else self._choose(found, request, step)
            tokens.append(token)
            if any(strike.effect.nan and step >= strike.effect.step for strike in strikes):
                found = found._replace(logprobs=(math.nan,) * CANDIDATES, other=math.nan)
            logprobs.append(self._told(_logprob_of(found, token)))
            hidden = sum(strike.effect.hides for strike in strikes if step >= strike.effect.step)
            top.append(self._top(found, max(0, sampling.top_logprobs - hidden)))
            state = _digest(state, token.to_bytes(8, "big"))
        reason: FinishReason = "stop" if count >= own_length else "length"
        text = self._text(tokens)
        if self._numerics.text_only:
            return Response(id=request.id, text=text, finish_reason=reason)
        return Response(
            id=request.id,
            text=text,
            token_ids=tuple(tokens),
            logprobs=tuple(logprobs) if sampling.logprobs else None,
            top_logprobs=tuple(top) if sampling.top_logprobs else None,
            finish_reason=reason,
        )

    def _length(self, state: bytes) -> int:
        shortest, longest = self._numerics.shortest, self._numerics.longest
        return shortest + int.from_bytes(state[:4], "big") % (longest - shortest + 1)

    def _position(self, state: bytes, step: int, strikes: Sequence[Strike]) -> _Position:
        ids, logits = self._exact(state)
        logits = _disturbed(logits, self._numerics.error * self._ulp, _digest(state, b"rounding"))
        for strike in strikes:
            effect = strike.effect
            if step >= effect.step:
                size = effect.ulps * self._ulp + effect.nats
                logits[0] -= effect.loses
                logits = _disturbed(logits, size, _digest(state, bytes([strike.number]), strike.nonce))
        tail = logits[-1] - _TAIL
        total = math.log(math.fsum(math.exp(logit) for logit in (*logits, tail)))
        other = tail - math.log(self._numerics.vocabulary - CANDIDATES)
        return _Position(ids, tuple(self._rounded(logit - total) for logit in logits), self._rounded(other - total))

    def _exact(self, state: bytes) -> tuple[tuple[int, ...], list[float]]:
        """Candidates with their true logits, in order of probability."""
        draws = _draws(state)
        near = draws.random() < self._numerics.near_ties
        margin = 10 ** (-7 + 4 * draws.random()) if near else 0.05 + 6 * draws.random()
        logits = [LOGIT, LOGIT - margin]
        while len(logits) < CANDIDATES:
            logits.append(logits[-1] - 0.2 - draws.random())
        ids: list[int] = []
        while len(ids) < CANDIDATES:
            token = int(draws.random() * self._numerics.vocabulary)
            if token not in ids:
                ids.append(token)
        return tuple(ids), logits

    def _rounded(self, logprob: float) -> float:
        if self._dtype == "float64":
            return logprob
        return float(struct.unpack("f", struct.pack("f", logprob))[0])

    def _choose(self, found: _Position, request: Request, step: int) -> int:
        """The most likely token, the first of equals; a draw where the row is sampled."""
        scores = list(found.logprobs)
        temperature = request.sampling.temperature
        if temperature > 0:
            draws = random.Random(self._seed(request) + step)  # noqa: S311 (nothing secret)
            scores = [score / temperature - math.log(-math.log(draws.random() or 0.5)) for score in scores]
        return found.ids[max(range(CANDIDATES), key=lambda number: scores[number])]

    def _seed(self, request: Request) -> int:
        fixed = self._numerics.fixed_seed
        asked = request.sampling if fixed is None else replace(request.sampling, seed=fixed)
        return row_seed(replace(request, sampling=asked))

    def _top(self, found: _Position, wanted: int) -> tuple[tuple[int, float], ...]:
        ranked = sorted(zip(found.ids, found.logprobs, strict=True), key=lambda pair: (-pair[1], pair[0]))
        return tuple((token, self._told(logprob)) for token, logprob in ranked[:wanted])

    def _told(self, logprob: float) -> float:
        """As it is transported: a server may round."""
        if self._numerics.decimals is not None:
            logprob = round(logprob, self._numerics.decimals)
        if self._numerics.digits is not None:
            logprob = float(f"{logprob:.{self._numerics.digits}g}")
        return logprob

    def _text(self, tokens: Sequence[int]) -> str:
        words = self._numerics.words
        return " ".join(words[token % len(words)] if words else f"w{token}" for token in tokens)


def row_digest(request: Request, seed: int) -> bytes:
    """What a row is to the model: its id, its prompt and its images."""
    parts = [part for message in request.prompt for part in (message.role, *map(repr, message.parts))]
    return _digest(f"{seed}:{request.id}".encode(), *(part.encode() for part in parts), *request.images)


def _digest(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(4, "big") + part)
    return digest.digest()


def _draws(state: bytes) -> random.Random:
    return random.Random(int.from_bytes(state, "big"))  # noqa: S311 (nothing secret)


def _disturbed(logits: Sequence[float], size: float, state: bytes) -> list[float]:
    """Every logit moved by up to `size` in either direction."""
    if not size:
        return list(logits)
    draws = _draws(state)
    return [logit + size * (2 * draws.random() - 1) for logit in logits]


def _logprob_of(found: _Position, token: int) -> float:
    return found.logprobs[found.ids.index(token)] if token in found.ids else found.other
