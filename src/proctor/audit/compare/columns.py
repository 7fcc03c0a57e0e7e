"""All compared positions of a comparison as flat arrays, one entry a position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proctor.audit.compare.align import Aligned
from proctor.audit.compare.leaders import NO_TOKEN, UNKNOWN, Leader, alike, leader
from proctor.audit.model import Observation

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Side(NamedTuple):
    """One side of the compared positions.

    Attributes:
        tokens: chosen tokens; `NO_TOKEN` where the server names none.
        logprobs: theirs; NaN also where not told, which `told` tells apart.
        told: whether there is a log-probability.
        leaders: most likely tokens; `NO_TOKEN` where not told.
        margins: distance to the next one (nats); NaN where not told.
    """

    tokens: Integers
    logprobs: Floats
    told: Flags
    leaders: Integers
    margins: Floats


class Columns(NamedTuple):
    """Compared positions, in the order of the pairs.

    Attributes:
        pair: place of the pair.
        row: row id.
        position: in the answer, from 0.
        same: whether both sides chose the same token; where no tokens can be compared the texts are equal, which counts
            as that.
        arm, against: the two sides.
        led_alike: 1 if the same token leads on both sides, 0 if not, -1 if not known.
    """

    pair: Integers
    row: Integers
    position: Integers
    same: Flags
    arm: Side
    against: Side
    led_alike: Integers

    @property
    def told(self) -> Flags:
        """Whether both sides tell the log-probability of the same token."""
        return self.arm.told & self.against.told & self.same


def columns_of(aligned: Sequence[Aligned]) -> Columns:
    """Flattens the positions that are compared: those up to and including the first token that differs.

    Without tokens nothing tells which positions belong together, except where the texts are equal and have equally many
    log-probabilities.
    """
    counts = [positions(item) for item in aligned]
    leaders = tuple([_leaders(item, side, n) for item, n in zip(aligned, counts, strict=True)] for side in (0, 1))
    each = [alike(one, other) for ours, theirs in zip(*leaders, strict=True)
            for one, other in zip(ours, theirs, strict=True)]  # fmt: skip
    repeated = np.array(counts, dtype=np.int64)
    rows = np.array([item.pair.arm.row_id for item in aligned], dtype=np.int64)
    arm = _side([item.pair.arm for item in aligned], counts, leaders[0])
    against = _side([item.pair.against for item in aligned], counts, leaders[1])
    as_text = np.repeat(np.array([item.unit == "character" for item in aligned], dtype=bool), repeated)
    return Columns(
        pair=np.repeat(np.arange(len(aligned)), repeated),
        row=np.repeat(rows, repeated),
        position=_flat([np.arange(n) for n in counts], np.int64),
        same=(arm.tokens == against.tokens) | as_text,
        arm=arm,
        against=against,
        led_alike=np.array([-1 if same is None else int(same) for same in each], dtype=np.int64),
    )


def positions(item: Aligned) -> int:
    """How many positions of a pair can be compared."""
    if item.unit == "token":
        return item.shared
    arm, against = item.pair
    if item.parted or item.cut or arm.logprobs is None or against.logprobs is None:
        return 0
    return len(arm.logprobs) if len(arm.logprobs) == len(against.logprobs) else 0


def fitting_logprobs(observation: Observation) -> bool:
    """Whether there is a log-probability for each token."""
    told = observation.logprobs
    return told is not None and (not observation.token_ids or len(told) == len(observation.token_ids))


def _leaders(item: Aligned, side: int, n: int) -> list[Leader]:
    top = item.pair[side].top
    if top is None or item.unit == "character":  # ids of another kind lead nowhere
        return [UNKNOWN] * n
    return [leader(top[place]) if place < len(top) else UNKNOWN for place in range(n)]


def _side(observations: Sequence[Observation], counts: Sequence[int], leaders: Sequence[Sequence[Leader]]) -> Side:
    def gathered(values: Callable[[Observation], Sequence[Any] | None], missing: Any, kind: Any) -> NDArray[Any]:
        pieces = []
        for observation, n in zip(observations, counts, strict=True):
            found = values(observation)
            pieces.append(np.full(n, missing, kind) if not found else np.array(found[:n], kind))
        return _flat(pieces, kind)

    fitting = np.array([fitting_logprobs(observation) for observation in observations], dtype=bool)
    return Side(
        tokens=gathered(lambda observation: observation.token_ids, NO_TOKEN, np.int64),
        logprobs=gathered(lambda o: o.logprobs if fitting_logprobs(o) else None, np.nan, np.float64),
        told=np.repeat(fitting, np.array(counts, dtype=np.int64)),
        leaders=np.array([one.token for each in leaders for one in each], dtype=np.int64),
        margins=np.array([one.margin for each in leaders for one in each], dtype=np.float64),
    )


def _flat(pieces: Sequence[NDArray[Any]], kind: Any) -> NDArray[Any]:
    return np.concatenate(pieces) if pieces else np.empty(0, kind)
