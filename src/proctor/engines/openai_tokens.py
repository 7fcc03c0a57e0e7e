"""Tokens as an OpenAI-compatible server names them, and ids for them.

The protocol names tokens by their text and bytes. A server that is asked to may write ids instead (vLLM:
``token_id:17``), and then those are used. Otherwise an id is made of the token's bytes: equal bytes give equal ids, on
every server and in every run. Such an id is negative, so that it is never mistaken for one of the model's own.
Two tokens with equal bytes are one here; for tokens that are parts of a character some servers tell the same
replacement character.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from proctor.rows.exchange import TopLogprobs

_ID = "token_id:"


class Token(msgspec.Struct):
    """One of the most likely tokens at a position."""

    logprob: float
    token: str = ""
    bytes: list[int] | None = None

    @property
    def id(self) -> int:
        """The server's id, or a negative one, -1 ... -2^31, made of the token's bytes."""
        number = self.token.removeprefix(_ID)
        if number != self.token and number.isdecimal():
            return int(number)
        data = self.token.encode("utf-8", "surrogatepass") if self.bytes is None else bytes(self.bytes)
        return -1 - (int.from_bytes(hashlib.blake2b(data, digest_size=4).digest(), "big") >> 1)


class TokenLogprob(Token):
    """The chosen token at a position, with the most likely ones."""

    top_logprobs: list[Token] | None = None


def chosen_ids(own: Sequence[int] | None, told: Sequence[TokenLogprob] | None) -> tuple[int, ...]:
    """Ids of the chosen tokens.

    Args:
        own: ids that the server gives for the whole answer.
        told: the tokens with their log-probabilities, where ids are to be made of them.

    Returns:
        In the same kind of ids as `top_of`: the server's own are used where it names the tokens by them.
    """
    if told is not None:
        return tuple(token.id for token in told)
    return tuple(own or ())


def top_of(told: Sequence[TokenLogprob], wanted: int) -> TopLogprobs:
    """The most likely tokens at each position, most likely first; one that a server names twice counts once."""
    return tuple(_ranked(position.top_logprobs or ())[:wanted] for position in told)


def _ranked(tokens: Sequence[Token]) -> tuple[tuple[int, float], ...]:
    by_id: dict[int, float] = {}
    for token in tokens:
        by_id.setdefault(token.id, token.logprob)
    return tuple(sorted(by_id.items(), key=lambda pair: (-pair[1], pair[0])))
