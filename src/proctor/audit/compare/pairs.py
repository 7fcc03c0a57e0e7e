"""Which answer is held against which: by row, and round by round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

from proctor.audit.model import Observation

ALL_PAIRS_UP_TO = 12
"""Sittings up to which each is compared with every other; above, with the first and with the one before it."""

Sitting = dict[int, Observation]


class Pair(NamedTuple):
    """The answers of one row on two sides."""

    arm: Observation
    against: Observation


class Pairing(NamedTuple):
    """All pairs of a comparison.

    Attributes:
        arm, against: names of the sides.
        pairs: those in which both sides have an answer, by round and row.
        failed: how many have none on a side.
        remarks: what a reader must know of how they were paired.
    """

    arm: str
    against: str
    pairs: tuple[Pair, ...]
    failed: int
    remarks: tuple[str, ...]


def answered(observation: Observation | None) -> bool:
    """Whether there is an answer, be it an empty one."""
    if observation is None or observation.failure is not None:
        return False
    return observation.text is not None or bool(observation.token_ids)


def pair_rounds(
    ours: Sequence[Observation], theirs: Sequence[Observation], arm: str | None = None, against: str | None = None
) -> Pairing:
    """Pairs each round of an arm with the same round of the other; with the nearest one where there is no such round.

    Args:
        ours, theirs: observations of one arm each, in any order.
        arm, against: names of the two arms; read from the observations where left out.

    Raises:
        ValueError: observations of several arms on a side, or a row twice in a round.
    """
    names = (_name(ours, arm), _name(theirs, against))
    left, right = _sittings(ours), _sittings(theirs)
    chosen = {key: _nearest(key[1], right) for key in left}
    remarks = [f"round {key[1]} is compared with round {other[1]}" for key, other in chosen.items()
               if other is not None and key[1] != other[1]]  # fmt: skip
    sides = ((left[key], right[other] if other is not None else {}) for key, other in chosen.items())
    return _pairing(names, sides if left else [({}, sitting) for sitting in right.values()], remarks)


def pair_repeats(observations: Sequence[Observation]) -> Pairing:
    """Pairs the sittings of one way of asking, the later with the earlier.

    Args:
        observations: of one arm, or of arms that ask in the same way (a baseline and its repetition).

    Raises:
        ValueError: a row twice in a round of an arm.
    """
    names = list(dict.fromkeys(observation.arm for observation in observations)) or [""]
    rank = {name: place for place, name in enumerate(names)}
    sittings = _sittings(observations, rank)
    keys = list(sittings)
    remarks = []
    if len(keys) <= ALL_PAIRS_UP_TO:
        together = list(combinations(range(len(keys)), 2))
    else:
        together = [(0, later) for later in range(1, len(keys))]
        together += [(later - 1, later) for later in range(2, len(keys))]
        remarks.append(f"each of {len(keys)} sittings is compared with the first and with the one before it")
    sides = ((sittings[keys[later]], sittings[keys[earlier]]) for earlier, later in together)
    return _pairing((names[-1], names[0]), sides, remarks)


def _name(observations: Sequence[Observation], given: str | None) -> str:
    names = {observation.arm for observation in observations}
    if len(names) > 1:
        raise ValueError(f"observations of several arms: {', '.join(sorted(names))}")
    return given if given is not None else next(iter(names), "")


def _sittings(
    observations: Sequence[Observation], rank: dict[str, int] | None = None
) -> dict[tuple[int, int], Sitting]:
    """Observations by (place of the arm, round), in that order, and by row."""
    found: dict[tuple[int, int], Sitting] = {}
    for observation in observations:
        sitting = found.setdefault((rank[observation.arm] if rank else 0, observation.round), {})
        if observation.row_id in sitting:
            raise ValueError(f"row {observation.row_id} twice in round {observation.round} of {observation.arm}")
        sitting[observation.row_id] = observation
    return dict(sorted(found.items()))


def _nearest(round_: int, sittings: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    return min(sittings, key=lambda key: (abs(key[1] - round_), key[1]), default=None)


def _pairing(names: tuple[str, str], sides: Iterable[tuple[Sitting, Sitting]], remarks: list[str]) -> Pairing:
    pairs, failed, lone = [], {names[0]: 0, names[1]: 0}, 0
    for ours, theirs in sides:
        for row in sorted(ours.keys() | theirs.keys()):
            one, other = ours.get(row), theirs.get(row)
            if one is not None and other is not None and answered(one) and answered(other):
                pairs.append(Pair(one, other))
            else:
                lone += 1
                for name, side in zip(names, (one, other), strict=True):
                    failed[name] += not answered(side)
    if lone:
        told = " and ".join(f"{count} in {name or 'an arm'}" for name, count in failed.items() if count)
        remarks = [*remarks, f"{lone} pairs are not compared for want of an answer: {told}"]
    return Pairing(*names, tuple(pairs), lone, tuple(remarks))
