"""Rows whose tokens part: how near a tie they did, and whether rounding can have done it."""

from __future__ import annotations

import math
from collections.abc import Iterable

from msgspec.structs import replace

from proctor.audit.compare.align import Aligned
from proctor.audit.compare.grain import CLAMP
from proctor.audit.compare.leaders import leader, ranked
from proctor.audit.model import Comparison, Flip, Observation


def flip_of(item: Aligned, position: int, shift: float, noise: float | None, *, replayed: bool = False) -> Flip:
    """Describes a pair that parts.

    Args:
        item: the pair.
        position: where it parts, in `item.unit`.
        shift: largest difference of log-probabilities before it (nats); NaN if not known.
        noise: that of most rows of the comparison (`Comparison.noise`).
        replayed: the texts are equal by force, and left out.
    """
    arm, against = item.pair
    tokens = item.unit == "token"
    unread = replayed or (arm.parsed is None and against.parsed is None)
    flip = Flip(
        row_id=arm.row_id,
        round=arm.round,
        position=position,
        margin=_margin(against, position) if tokens else None,
        shift=None if math.isnan(shift) else shift,
        jump=_jump(arm, against, position) if tokens else None,
        texts=("", "") if replayed else (arm.text or "", against.text or ""),
        parsed_differs=None if unread else arm.parsed != against.parsed,
    )
    return replace(flip, suspicious=suspicious(flip, noise))


def suspicious(flip: Flip, noise: float | None = None) -> bool | None:
    """Whether rounding of the size that is seen cannot have made the flip.

    For the most likely token to change, the gap of the two must close: if each moved by at most x, the gap was at most
    2x. So a margin above twice the noise is suspicious: the row did something that most rows do not. The noise is what
    most rows show (`Comparison.noise`), or what this row showed before the flip if that is more. The jump at the flip
    itself does not count: any flip jumps as far as it must, rounding or bug.

    Returns:
        None where margin or noise are not known (answers of text alone, no log-probabilities).
    """
    known = [level for level in (noise, flip.shift) if level is not None]
    if flip.margin is None or not known:
        return None
    return flip.margin > 2 * max(known)


def contradicted(flip: Flip) -> bool | None:
    """Whether the log-probabilities at the flip deny it: they moved by less than half the margin.

    A greedy choice cannot flip then. Either the token was not the most likely one (sampling, penalties, a grammar), or
    the log-probabilities are not those it was chosen by. None where margin or jump are not known.
    """
    if flip.margin is None or flip.jump is None:
        return None
    return flip.margin > 2 * flip.jump


def suspicious_flips(comparison: Comparison) -> tuple[Flip, ...]:
    """The flips that rounding does not explain, largest margin first."""
    return tuple(flip for flip in comparison.flips if flip.suspicious)


def by_margin(flips: Iterable[Flip]) -> tuple[Flip, ...]:
    """Largest margin first, unknown ones last."""
    return tuple(sorted(flips, key=lambda f: (f.margin is None, -(f.margin or 0.0), f.row_id, f.round)))


def remarks_on(flips: tuple[Flip, ...], noise: float | None) -> list[str]:
    """What a reader must know of the flips."""
    beyond = [flip for flip in flips if flip.suspicious]
    if not beyond:
        return []
    remarks = [
        f"{len(beyond)} of {len(flips)} flips have a margin above twice the noise ({_nats(noise)}), "
        f"up to {_nats(beyond[0].margin)}: rounding of that size does not make them"
    ]
    denied = sum(bool(contradicted(flip)) for flip in beyond)
    if denied:
        remarks.append(f"in {denied} of those the log-probabilities moved by less than half the margin: "
                       "they are not what the token was chosen by")  # fmt: skip
    return remarks


def _nats(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2g} nats"


def _margin(reference: Observation, position: int) -> float | None:
    if reference.top is None or position >= len(reference.top):
        return None
    margin = leader(reference.top[position]).margin
    return None if math.isnan(margin) else margin


def _jump(arm: Observation, against: Observation, position: int) -> float | None:
    ours, theirs = _told(arm, position), _told(against, position)
    moved = [abs(ours[token] - theirs[token]) for token in ours.keys() & theirs.keys()]
    return max(moved, default=None)


def _told(observation: Observation, position: int) -> dict[int, float]:
    """Finite, unclamped log-probabilities of all tokens that are told at a position, the chosen one included."""
    told: dict[int, float] = {}
    if observation.top is not None and position < len(observation.top):
        told.update(ranked(observation.top[position]))
    if observation.logprobs is not None and position < min(len(observation.logprobs), len(observation.token_ids)):
        told[observation.token_ids[position]] = observation.logprobs[position]
    return {token: logprob for token, logprob in told.items() if math.isfinite(logprob) and logprob > CLAMP}
