"""Whether compiling a target can matter at all: what it takes, and what compiling it saves, of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from proctor.compile.estimate import interval, together
from proctor.compile.model import ANSWERS, ENCODER, Interval, Measured
from proctor.compile.subsets import estimates_of

MATTERS = 0.01
"""Share of the whole's time below which a saving is not worth having, nor the rounds that would tell it from nothing.

By Amdahl's law a target that takes less of the whole than this cannot save more, however fast it gets.
"""
_TOLD = {ANSWERS: "the time end to end", ENCODER: "the encoder's time"}


class Worth(NamedTuple):
    """One target, or several together, held against the whole.

    Attributes:
        of: which whole: `ANSWERS`, and `ENCODER` where those were not timed.
        seconds: that one unit of it takes eagerly.
        share: of its eager time that the targets take eagerly.
        saving: of its eager time that compiling them saves.
    """

    of: str
    seconds: float
    share: Interval
    saving: Interval

    @property
    def whole(self) -> str:
        """Which whole, in words."""
        return _TOLD[self.of]


def worth(measured: Measured, names: Sequence[str]) -> Worth | None:
    """Holds `names` against the whole, where all of them were timed together; None where they were not.

    What both have in common cancels out: a process that is slow in all respects says nothing about a share.
    """
    timed = {one.target for one in measured.timings}
    of = next((name for name in (ANSWERS, ENCODER) if name in timed), None)
    if of is None or not names:
        return None
    found = estimates_of(measured, [*dict.fromkeys([*names, of])])
    if not {*names, of} <= set(found):
        return None
    whole, parts = found[of], together(found, names)
    if min(whole.value[0], whole.draws[..., 0].min()) <= 0:
        return None
    with np.errstate(over="ignore", invalid="ignore"):  # bounds that are not finite are none
        value, draws = parts.value / whole.value[0], parts.draws / whole.draws[..., :1]
        share = interval(float(value[0]), draws[..., 0], whole.processes, whole.looks)
        saved = draws[..., 0] - draws[..., 1]
        saving = interval(float(value[0] - value[1]), saved, whole.processes, whole.looks)
    return Worth(of, float(whole.value[0]), share, saving)


def less_than_matters(found: Interval) -> bool:
    """Whether a share of the whole lies below `MATTERS` by its whole interval."""
    return found.high is not None and found.high < MATTERS


def at_best(held: Worth, speedup: Interval | None) -> float | None:
    """Most of the whole's time that compiling may save, by two bounds: the lower one counts. None without bounds.

    One is that of the saving itself. The other is what the largest speed-up saves of the largest share: it has the
    noise of processes in it in which the target was timed and the whole was not.
    """
    bounds = [] if held.saving.high is None else [held.saving.high]
    if speedup is not None and speedup.high is not None and held.share.high is not None:
        bounds.append((1 - 1 / speedup.high) * held.share.high)
    return max(0.0, min(bounds)) if bounds else None
