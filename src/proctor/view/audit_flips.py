"""Answers that part: both side by side, from shortly before the first difference on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from proctor.audit.conduct import Audit, Shown
from proctor.audit.model import Flip

MOST = 12
_BEFORE, _AFTER = 220, 320
ELLIPSIS = "\u2026"


class Parted(NamedTuple):
    """A text in three: what both have, the word in which they part (empty where the text ends there), and the rest."""

    same: str
    mark: str
    rest: str


@dataclass(frozen=True, slots=True)
class FlipView:
    """One row whose answers part.

    Attributes:
        arm, against: which answers these are: `ours` is of `arm`, `theirs` of `against`.
        often: in how many pairs of answers it was seen in just this way.
        judgement: whether rounding explains it, and `tone` how bad that is.
        same_text: the tokens differ, and spell the same text.
    """

    row_id: int
    arm: str
    against: str
    often: int
    flip: Flip
    question: str
    ours: Parted
    theirs: Parted
    tone: str
    judgement: str
    same_text: bool


def flip_views(audit: Audit) -> tuple[list[FlipView], int]:
    """The weightiest flips of what was found, largest margin first, and how many more there are."""
    found: dict[tuple[object, ...], tuple[str, str, Flip, int]] = {}
    for arm, against, flip in _flips(audit):
        key = (flip.row_id, flip.position, flip.texts, against)
        if key in found:
            first = found[key]
            found[key] = (*first[:3], first[3] + (first[0] == arm))
        else:
            found[key] = (arm, against, flip, 1)
    ordered = sorted(found.values(), key=lambda one: (one[2].margin is None, -(one[2].margin or 0.0), one[2].row_id))
    views = [_view(audit, *one) for one in ordered[:MOST]]
    return views, max(0, len(ordered) - MOST)


def _flips(audit: Audit) -> Iterator[tuple[str, str, Flip]]:
    """Of arms with an effect; where nothing agrees with itself, of arms against themselves."""
    if audit.verdict.kind == "run-to-run":
        for shown in audit.arms:
            yield from ((shown.arm.name, shown.arm.name, flip) for flip in shown.repeats.flips)
        again = (shown for shown in audit.arms if shown.arm.layer == "repeat")
        yield from _compared(again)
        return
    guilty = {effect.arm: place for place, effect in enumerate(audit.effects)}
    arms = [shown for shown in audit.arms if shown.arm.name in guilty]
    yield from _compared(sorted(arms, key=lambda shown: guilty[shown.arm.name]))


def _compared(arms: Iterable[Shown]) -> Iterator[tuple[str, str, Flip]]:
    for shown in arms:
        if shown.comparison is not None:
            yield from ((shown.arm.name, shown.arm.against, flip) for flip in shown.comparison.flips)


def _view(audit: Audit, arm: str, against: str, flip: Flip, often: int) -> FlipView:
    ours, theirs = parted(*flip.texts)
    tone, judgement = _judgement(flip)
    return FlipView(
        row_id=flip.row_id,
        arm=arm,
        against="another round" if arm == against else against,
        often=often,
        flip=flip,
        question=audit.questions.get(str(flip.row_id), ""),
        ours=ours,
        theirs=theirs,
        tone=tone,
        judgement=judgement,
        same_text=flip.texts[0] == flip.texts[1],
    )


def _judgement(flip: Flip) -> tuple[str, str]:
    if flip.suspicious is None:
        return "open", "margin not known"
    return ("bad", "rounding does not explain it") if flip.suspicious else ("good", "within twice the shift seen")


def parted(one: str, other: str) -> tuple[Parted, Parted]:
    """Two texts, cut where they part; texts that are the same have neither mark nor rest."""
    pairs = enumerate(zip(one, other, strict=False))
    length = next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
    start = length
    while start > 0 and not one[start - 1].isspace():  # the whole word is marked, not its middle
        start -= 1
    if one == other:
        start = length
    return _cut(one, start, length), _cut(other, start, length)


def _cut(text: str, start: int, length: int) -> Parted:
    end = length
    while end < len(text) and not text[end].isspace():
        end += 1
    end = max(end, min(length + 1, len(text)))  # they may part in a space
    same, mark, rest = text[:start], text[start:end] if len(text) > length else "", text[end:]
    if len(text) <= length:
        same, rest = text, ""
    same = same if len(same) <= _BEFORE else ELLIPSIS + same[-_BEFORE:]
    return Parted(same, mark, rest if len(rest) <= _AFTER else rest[:_AFTER] + ELLIPSIS)
