"""What rules look at: the changes, counted per repetition where that is known, and what kernels' names say."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import msgspec

from proctor.trace.diff.changes import Change
from proctor.trace.diff.comparable import Basis, Comparability
from proctor.trace.diff.noise import Verdict
from proctor.trace.diff.repeats import Iterations, same_rate
from proctor.trace.diff.sides import Kind, Side
from proctor.trace.diff.split import Amount
from proctor.trace.diff.totals import Total
from proctor.trace.names import short_name

MATTERS = 0.02
"""A launch that takes less than this share longer takes the same, for what a rule says of all kernels."""


class Part(msgspec.Struct, frozen=True):
    """What a clue takes of one change: those of its three parts that it is about, ns."""

    change: str
    """Of the change: ``kernel:NAME``, as in the ids of clues."""
    iterations: int = 0
    calls: int = 0
    per_call: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return self.iterations + self.calls + self.per_call


def id_of(change: Change) -> str:
    """Names a change within a diff."""
    return f"{change.kind}:{change.name}"


def whole(changes: Iterable[Change]) -> tuple[Part, ...]:
    """All of these changes."""
    return tuple(Part(id_of(change), *change.split) for change in changes)


def in_part(changes: Iterable[Change], *, iterations: bool = False, calls: bool = False) -> tuple[Part, ...]:
    """Of these changes the part of iterations, of calls, or of the time per call."""
    if iterations:
        return tuple(Part(id_of(change), iterations=change.split.iterations) for change in changes)
    if calls:
        return tuple(Part(id_of(change), calls=change.split.calls) for change in changes)
    return tuple(Part(id_of(change), per_call=change.split.per_call) for change in changes)


class Clue(msgspec.Struct, frozen=True, kw_only=True):
    """One thing seen, with the figures of both sides.

    Attributes:
        id: stable within a diff.
        what: what was looked at.
        a: A's figure, in words.
        b: B's figure.
        basis: what it rests on.
        covers: which parts of which changes it is about; none for what has no time of its own.
        contribution_ns: their sum, a part of the change of all GPU work; None where it covers none.
        share: that part over the whole change's size; None where nothing changed.
        supports: hypotheses it supports, by id.
        against: hypotheses it speaks against.
        noise: it does not exceed what repeated launches show: no evidence.
    """

    id: str
    what: str
    a: str
    b: str
    basis: Basis
    covers: tuple[Part, ...] = ()
    contribution_ns: int | None = None
    share: float | None = None
    supports: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    noise: bool = False


class Seen(NamedTuple):
    """Kernels of one sort, on both sides."""

    changes: tuple[Change, ...]
    a: int
    """Launches in A."""
    b: int

    @property
    def names(self) -> str:
        """The first of the names, and how many more."""
        names = [change.name for change in self.changes]
        return short_name(names[0]) + (f" and {len(names) - 1} more" if len(names) > 1 else "") if names else "none"


@dataclass(frozen=True)
class Evidence:
    """Everything a rule may look at."""

    a: Side
    b: Side
    changes: tuple[Change, ...]
    totals: dict[str, Total]
    iterations: Iterations | None
    comparability: Comparability

    @cached_property
    def kernels(self) -> tuple[Change, ...]:
        """Changes of kernels."""
        return tuple(change for change in self.changes if change.kind is Kind.KERNEL)

    @cached_property
    def matched(self) -> tuple[Change, ...]:
        """Kernels that both sides have."""
        return tuple(change for change in self.kernels if change.a is not None and change.b is not None)

    @cached_property
    def ranks(self) -> int:
        """Processes with kernels, the larger of both sides."""
        return max(self.a.ranks, self.b.ranks, 1)

    def only(self, side: str) -> tuple[Change, ...]:
        """Kernels that only this side (``a`` or ``b``) has."""
        return tuple(c for c in self.kernels if (c.b if side == "a" else c.a) is None)

    def seen(self, fits: Callable[[Change], object]) -> Seen:
        """Kernels that fit, on both sides."""
        found = tuple(change for change in self.kernels if fits(change))
        return Seen(
            found,
            sum(change.a.calls for change in found if change.a),
            sum(change.b.calls for change in found if change.b),
        )

    def in_category(self, *categories: str) -> tuple[Change, ...]:
        """Kernels of these categories."""
        return tuple(change for change in self.kernels if change.category in categories)

    def rates(self, a: int, b: int) -> tuple[float, float]:
        """Counts per repetition where repetitions are known, as they are otherwise."""
        if self.iterations is None:
            return float(a), float(b)
        return a / self.iterations.a, b / self.iterations.b

    def same_count(self, a: int, b: int) -> bool:
        """Whether two counts are the same per repetition, but for what the edges of the windows cut."""
        if a == b and (self.iterations is None or self.iterations.a == self.iterations.b):
            return True
        if self.iterations is None or not a or not b:
            return False
        cut = bool(self.a.cut or self.b.cut or self.iterations.by == "kernel counts")
        if not cut:
            return a * self.iterations.b == b * self.iterations.a
        return same_rate(Amount(a, 0), Amount(b, 0), self.iterations, self.ranks)

    def steady(self, changes: Iterable[Change] | None = None) -> float:
        """Share of kernels' time whose launches take the same on both sides: within noise, or within 2 %.

        What only one side has does not take the same; what ran too rarely to tell is left out.
        """
        chosen = [c for c in (self.kernels if changes is None else changes) if c.verdict is not Verdict.FEW]
        total = sum(time_of(change) for change in chosen)
        same = sum(time_of(c) for c in chosen if c.a and c.b and not moved(c) and not c.shapes_changed)
        return same / total if total else 0.0


def moved(change: Change) -> bool:
    """Whether the usual launch takes longer or shorter, beyond noise and by enough to matter."""
    ratio = change.ratio
    return change.verdict is Verdict.BEYOND and ratio is not None and abs(ratio - 1) >= MATTERS


def time_of(change: Change) -> int:
    """Summed time on both sides, ns."""
    return (change.a.total_ns if change.a else 0) + (change.b.total_ns if change.b else 0)


class Finding(NamedTuple):
    """What a rule found.

    Attributes:
        supported: clues that it fits.
        against: clues that speak against it.
        ruled_out: why it is ruled out, if it is.
        says: the statement, where it is more exact than the rule's own.
    """

    supported: tuple[Clue, ...] = ()
    against: tuple[Clue, ...] = ()
    ruled_out: str = ""
    says: str = ""


NOTHING = Finding()


class Rule(NamedTuple):
    """A hypothesis and the test it must pass.

    Attributes:
        id: stable, for machines.
        says: the statement, if the rule fits.
        rests_on: what the conclusion rests on: a difference between the captures in that bars it.
        look: the test.
    """

    id: str
    says: str
    rests_on: tuple[Basis, ...]
    look: Callable[[Evidence], Finding]


def launches(count: int) -> str:
    """``1 launch``, ``2,000 launches``."""
    return f"{count:,} launch{'' if count == 1 else 'es'}"


def milliseconds(ns: float) -> str:
    """``12.345 ms``."""
    return f"{ns / 1e6:,.3f} ms"


def microseconds(ns: float) -> str:
    """``12.3 us``."""
    return f"{ns / 1e3:,.1f} us"
