"""How many iterations a window holds: counted by an NVTX range that is named, or found in the kernels' counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from proctor.rows import UserError
from proctor.trace.diff.sides import Side
from proctor.trace.diff.split import Amount

_FEWEST_PER_RANK = 4
_INFORMATIVE = 0.25
"""An edge that cuts an iteration makes a count uncertain by a share of the unit; beyond this share, any would fit."""
_SUPPORT = 0.9
_COVERED = 0.5
_NEARLY = 0.85


class Iterations(msgspec.Struct, frozen=True, kw_only=True):
    """What repeats in both windows, and how often.

    Attributes:
        a: repetitions in A, summed over ranks.
        b: the same in B.
        by: ``range`` or ``kernel counts``.
        what: in words, what was counted; a repeating unit of kernels may be a layer and need not be a step.
        edge: by how much a figure per repetition may differ between A and B for what the edges of the windows cut, a
            share: each rank's window holds its count of repetitions, give or take one. 0 where the edges cut none.
    """

    a: int
    b: int
    by: str
    what: str
    edge: float = 0.0


class _Count(NamedTuple):
    a: int
    b: int
    time: int


def by_range(a: Side, b: Side, text: str) -> Iterations:
    """Counts how often the NVTX range `text` was opened, on every thread.

    Raises:
        UserError: a side has no such range.
    """
    for side in (a, b):
        if not side.ranges[text]:
            known = ", ".join(repr(name) for name, _ in side.ranges.most_common(5))
            raise UserError(
                f"no NVTX range {text!r} is in this trace",
                where=str(side.trace.path),
                fix=f"the most frequent ones are {known}" if known else "capture with `-t cuda,nvtx`",
            )
    counts = (a.ranges[text], b.ranges[text])
    edge = _edge((a, b), counts, partial=False)
    return Iterations(a=counts[0], b=counts[1], by="range", what=f"NVTX range {text!r}", edge=edge)


def by_counts(a: Side, b: Side) -> Iterations | None:
    """Finds a unit of work that repeats on both sides: most kernels run a whole multiple of its count.

    A window cuts an iteration at either end, so a kernel that runs `m` times in the unit may be off by `m` launches a
    rank. A kernel is asked only where that leaves the answer open. The unit is the largest count that kernels with
    at least 90 % of the time asked about agree with; among counts nearly as large, which differ by what the edges cut,
    the one that fits best. None where there is none, or too little time could be asked about.
    """
    counts = list(_shared(a, b))
    ranks = max(a.ranks, b.ranks, 1)
    total = sum(work.amount.total for side in (a, b) for work in side.kernels)
    units = {(c.a, c.b) for c in counts if min(c.a, c.b) >= _FEWEST_PER_RANK * ranks}
    fits = {unit: _fit(counts, unit, ranks) for unit in units}
    good = {u: f for u, f in fits.items() if f.asked >= _COVERED * total and f.agreeing >= _SUPPORT * f.asked}
    if not good:
        return None
    largest = max(sum(unit) for unit in good)
    unit = min((u for u in good if sum(u) >= _NEARLY * largest), key=lambda u: (good[u].misfit, u))
    what = f"a unit of kernels whose counts are its multiples ({good[unit].agreeing / total:.0%} of kernel time)"
    edge = _edge((a, b), unit, partial=good[unit].misfit > 0)
    return Iterations(a=unit[0], b=unit[1], by="kernel counts", what=what, edge=edge)


def _edge(sides: tuple[Side, Side], counts: tuple[int, int], *, partial: bool) -> float:
    """What the edges may make of a ratio: a repetition of each rank, on sides that were cut or do not come out even."""
    both = zip(sides, counts, strict=True)
    return sum(side.ranks / count for side, count in both if side.cut or partial)


def _shared(a: Side, b: Side) -> Iterable[_Count]:
    for work in a.kernels:
        other = b.works.get((work.kind, work.name))
        if other is not None:
            one, two = work.amount, other.amount
            yield _Count(one.calls, two.calls, one.total + two.total)


class _Fit(NamedTuple):
    asked: int
    """Time of the kernels asked about, ns."""
    agreeing: int
    misfit: float
    """Mean distance of a count from its multiple of the unit, in launches per unit, weighted by time."""


def _fit(counts: list[_Count], unit: tuple[int, int], ranks: int) -> _Fit:
    asked = agreeing = 0
    misfit = 0.0
    for count in counts:
        multiple = max(1, round(count.a / unit[0]))
        slack = multiple * ranks
        if slack > _INFORMATIVE * min(unit):
            continue
        asked += count.time
        off = [abs(count.a - multiple * unit[0]), abs(count.b - multiple * unit[1])]
        agreeing += count.time if max(off) <= slack else 0
        misfit += count.time * sum(off) / multiple
    return _Fit(asked, agreeing, misfit / asked if asked else 0.0)


def same_rate(a: Amount, b: Amount, iterations: Iterations, ranks: int) -> bool:
    """Whether launches per iteration are the same on both sides, but for an iteration that an edge of a window cut."""
    per_iteration = max(a.calls / iterations.a, b.calls / iterations.b)
    expected = a.calls * iterations.b / iterations.a
    return abs(b.calls - expected) <= max(1.0, per_iteration) * ranks * (1 + iterations.b / iterations.a)
