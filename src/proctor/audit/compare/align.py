"""Where two answers part: by tokens, or by characters where a server names no tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from proctor.audit.compare.pairs import Pair


class Aligned(NamedTuple):
    """A pair and how far its sides go together.

    Attributes:
        unit: what is counted.
        length: leading units that are equal.
        parted: whether the sides differ after them: in the next unit, or because one side ends there by itself.
        cut: one side ends there because a limit on its length was reached; what would have followed is not known.
    """

    pair: Pair
    unit: Literal["token", "character"]
    length: int
    parted: bool
    cut: bool

    @property
    def shared(self) -> int:
        """Token positions at which both sides were asked the same and have a token: up to the first that differs."""
        if self.unit != "token":
            return 0
        arm, against = self.pair
        return min(self.length + self.parted, len(arm.token_ids), len(against.token_ids))


def align(pair: Pair) -> Aligned:
    """Finds where the two answers of a pair part."""
    if comparable_ids(pair):
        return _aligned(pair, "token", pair.arm.token_ids, pair.against.token_ids)
    return _aligned(pair, "character", pair.arm.text or "", pair.against.text or "")


def comparable_ids(pair: Pair) -> bool:
    """Whether both sides name their tokens, in the same kind of ids.

    Ids that an engine makes up from a token's bytes are negative; they say nothing beside a tokenizer's own.
    """
    arm, against = pair
    if not all(side.token_ids or side.text == "" for side in pair):
        return False
    if not arm.token_ids or not against.token_ids:
        return True
    return (min(arm.token_ids) < 0) == (min(against.token_ids) < 0)


def _aligned(pair: Pair, unit: Literal["token", "character"], one: Sequence[Any], other: Sequence[Any]) -> Aligned:
    if one == other:
        return Aligned(pair, unit, len(one), parted=False, cut=False)
    length = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    ended = min(len(one), len(other)) == length
    shorter = pair.arm if len(one) < len(other) else pair.against
    cut = ended and shorter.finish_reason == "length"
    return Aligned(pair, unit, length, parted=not cut, cut=cut)
