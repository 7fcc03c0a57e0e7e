"""How much of a change in time comes from more iterations, from more launches, and from longer ones: sums exactly."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple


class Amount(NamedTuple):
    """Work of one kind on one side."""

    calls: int
    total: int
    """Summed durations, ns."""


class Split(NamedTuple):
    """A change of a total in three parts, ns. They sum to the change to the nanosecond."""

    iterations: int = 0
    """Because the window holds more or fewer iterations; 0 where their number is not known."""
    calls: int = 0
    """Because of more or fewer launches (per iteration, where iterations are known)."""
    per_call: int = 0
    """Because a launch takes longer or shorter, on average."""

    @property
    def total(self) -> int:
        """The change itself."""
        return self.iterations + self.calls + self.per_call

    def plus(self, other: Split) -> Split:
        """Both together."""
        return Split(self.iterations + other.iterations, self.calls + other.calls, self.per_call + other.per_call)


def split(a: Amount, b: Amount, iterations: tuple[int, int] | None = None) -> Split:
    """The parts of ``b.total - a.total``, a total being ``iterations * calls per iteration * time per call``.

    Each factor's part is its Shapley value: the change it makes, averaged over every order in which the factors could
    have changed. With two factors that is the midpoint rule, ``(nb - na) * (ma + mb) / 2`` for the calls and
    ``(mb - ma) * (na + nb) / 2`` for the time per call; with three, the weights are 1/3 where the other two factors are
    of one side and 1/6 where they are of different sides. No part is left over, and A and B may change places.
    Source: Shapley 1953; for the decomposition of products Sun, "Changing the structure of energy consumption",
    Energy Economics 20 (1998), "jointly created, equally distributed".

    What exists on one side only has no time per call on the other: all of its change is calls (and iterations).

    Args:
        a: the work before.
        b: the work after.
        iterations: how many iterations each window holds; None where that is not known.
    """
    change = b.total - a.total
    times = [Fraction(side.total, side.calls) if side.calls else None for side in (a, b)]
    before = times[0] if times[0] is not None else times[1]
    after = times[1] if times[1] is not None else times[0]
    if before is None or after is None:
        return Split()
    if iterations is None:
        per_call = round((after - before) * Fraction(a.calls + b.calls, 2))
        return Split(0, change - per_call, per_call)
    rates = (Fraction(a.calls, iterations[0]), Fraction(b.calls, iterations[1]))
    more = round(_part(Fraction(iterations[0]), Fraction(iterations[1]), rates, (before, after)))
    per_call = round(_part(before, after, (Fraction(iterations[0]), Fraction(iterations[1])), rates))
    return Split(more, change - more - per_call, per_call)


def _part(
    before: Fraction, after: Fraction, one: tuple[Fraction, Fraction], other: tuple[Fraction, Fraction]
) -> Fraction:
    """One factor's Shapley value in a product of three."""
    same = one[0] * other[0] + one[1] * other[1]
    crossed = one[0] * other[1] + one[1] * other[0]
    return (after - before) * (same / 3 + crossed / 6)
