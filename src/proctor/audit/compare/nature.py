"""Noise or bug: two arms that differ, each against a reference of higher precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from proctor.audit.compare.flips import suspicious_flips
from proctor.audit.compare.whole import compare
from proctor.audit.model import Comparison, Flip, Observation

SLACK = 1e-5
"""Nats by which an arm may be worse without a word: ``tol / 10`` at the default ``tol = 1e-4`` of PyTorch's rule."""
TOO_FAR = 0.3
"""Root mean square error (nats) above which even the better arm is no rounded copy of the reference. Rounding moves
log-probabilities by 5e-6 (float32) to 6e-2 (bfloat16) in a decoder of 28 layers."""


Kind = Literal["rounding", "wrong results", "unknown"]


class Judgement(NamedTuple):
    """What kind of difference it is, and why, in one sentence."""

    kind: Kind
    sentence: str


def nature(
    arm: Sequence[Observation],
    against: Sequence[Observation],
    reference: Sequence[Observation],
    *,
    same_format: bool = True,
    replayed: bool = False,
) -> Judgement:
    """What kind of difference two arms have, by `judged`.

    Args:
        arm, against: observations of the two arms.
        reference: of the same rows at higher precision, in any number of rounds; may be empty.
        same_format: both arms compute in the same number format.
        replayed: all three were made to choose the same tokens, so every position counts.
    """
    if not reference:
        return Judgement("unknown", "there is no reference")
    sides = (compare(side, reference, replayed=replayed) for side in (arm, against))
    return judged(*sides, same_format=same_format)


def judged(arm: Comparison | None, against: Comparison | None, *, same_format: bool = True) -> Judgement:
    """Judges two arms by their errors against the same reference of higher precision.

    PyTorch's own rule (``torch._dynamo.utils.same`` with ``fp64_ref``, torch 2.13): a result is right if its root mean
    square error against the reference is at most k times that of the other result plus ``tol / 10``, with k = 3 for
    half precision or fewer than 1,000 numbers, and with ``use_larger_multiplier_for_smaller_tensor`` 8 up to 500 and 10
    up to 10 of them. It is applied here in both directions to log-probabilities of the tokens before the first flip, or
    of all tokens where they were replayed. What comes after a flip is not in the former figure, and one wrong token is
    little in either, so the flips are looked at too: a gap in the reference that is more than twice the largest error
    of the other arm was not closed by rounding.

    Arms in different number formats (an arm in bfloat16 against one in float32) are not alike however right they are.
    Their errors are not compared; only flips that an arm's own noise does not explain speak against it.

    Args:
        arm, against: comparisons of the two arms with that reference; None where there is none.
        same_format: both arms compute in the same number format.

    Raises:
        ValueError: they are not comparisons with the same arm.
    """
    if arm is None or against is None:
        return Judgement("unknown", "there is no reference of higher precision")
    if arm.against != against.against:
        raise ValueError(f"references differ: {arm.against} and {against.against}")
    if arm.rms is None or against.rms is None:
        return Judgement("unknown", "no log-probabilities could be compared with the reference")
    better, worse = sorted((arm, against), key=lambda comparison: comparison.rms or 0.0)
    errors = f"root mean square error against {arm.against}: {_told(better)}, {_told(worse)}"
    if (better.rms or 0.0) > TOO_FAR:
        return Judgement("unknown", f"both arms are far from the reference ({errors}): it does not tell them apart")
    if not same_format:
        return _by_own_flips(arm, against, errors)
    if (worse.rms or 0.0) > multiplier(min(_positions(arm), _positions(against))) * (better.rms or 0.0) + SLACK:
        return Judgement("wrong results", f"{worse.arm} is far further from the reference ({errors})")
    return _by_flips(arm, against, errors)


def multiplier(positions: int) -> float:
    """How many times worse an error may be, by how many numbers it is the mean of; as in PyTorch's rule."""
    if positions <= 10:
        return 10.0
    return 8.0 if positions <= 500 else 3.0


def _by_flips(arm: Comparison, against: Comparison, errors: str) -> Judgement:
    """Flips that one arm has and the other's error does not explain."""
    for one, other in ((arm, against), (against, arm)):
        flips = _unexplained(one, other)
        if flips:
            margin = flips[0].margin or 0.0
            sentence = (f"{one.arm} flips {len(flips)} rows that {other.arm} does not, at a margin of up to "
                        f"{margin:.2g} nats, more than twice the largest error of {other.arm}")  # fmt: skip
            return Judgement("wrong results", f"{sentence} ({errors})")
    return Judgement("rounding", f"both arms are about as far from the reference ({errors})")


def _by_own_flips(arm: Comparison, against: Comparison, errors: str) -> Judgement:
    """Flips against the reference that are too large for the noise of the arm itself."""
    for one in (arm, against):
        if flips := suspicious_flips(one):
            return Judgement("wrong results", f"{one.arm} flips {len(flips)} rows beyond its own noise ({errors})")
    if max(arm.rms or 0.0, against.rms or 0.0) > TOO_FAR:
        return Judgement("unknown", f"an arm is too far from the reference to tell ({errors})")
    return Judgement(
        "rounding", f"the arms compute in different formats, and neither flips beyond its noise ({errors})"
    )


def _unexplained(one: Comparison, other: Comparison) -> list[Flip]:
    """Flips of `one`, largest margin first, whose margin an error like the largest of `other` cannot close."""
    largest = max([other.shift[-1] if other.shift else 0.0, *(flip.jump or 0.0 for flip in other.flips)])
    there = {(flip.row_id, flip.position) for flip in other.flips}
    return [flip for flip in one.flips
            if flip.margin is not None and flip.margin > 2 * max(largest, SLACK)
            and (flip.row_id, flip.position) not in there]  # fmt: skip


def _positions(comparison: Comparison) -> int:
    return comparison.logprob_equal.of if comparison.logprob_equal else 0


def _told(comparison: Comparison) -> str:
    return f"{comparison.arm} {comparison.rms:.2g} nats"
