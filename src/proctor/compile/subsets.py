"""What compiling some of the targets saves, and what of the encoder lies in none of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from proctor.compile.breakeven import CACHES, break_even, compile_seconds, scaled
from proctor.compile.estimate import Estimate, estimate, together, units_per_row
from proctor.compile.model import ENCODER, Interval, Measured, Subset

_ALL_SUBSETS_OF = 4
"""Up to so many targets every subset is shown; of more, each alone, each left out, all, and the best by the values."""


def estimates_of(measured: Measured, names: Sequence[str]) -> dict[str, Estimate]:
    """Estimates of those of `names` that were timed, all of them over the same shapes and the same processes.

    Processes that were added for what was still open have not timed the rest.
    """
    alone = {name: found for name in names if (found := estimate(measured, name))}
    common = [s.name for s in measured.shapes if all(s.name in one.shapes for one in alone.values())]
    numbers = set.intersection(*(set(one.numbers) for one in alone.values())) if alone else set()
    if not common or not numbers:
        return {}
    again = {
        name: one
        if set(one.shapes) == set(common) and set(one.numbers) == numbers
        else estimate(measured, name, common, numbers)
        for name, one in alone.items()
    }
    return {name: one for name, one in again.items() if one is not None}


def subsets_of(measured: Measured) -> tuple[Subset, ...]:
    """Subsets of the targets that were timed, those that save most first."""
    parts = estimates_of(measured, list(measured.targets))
    if not parts:
        return ()
    seen = {name: {one.process for one in measured.timings if one.target == name} for name in parts}
    alike = all(numbers == seen[next(iter(seen))] for numbers in seen.values())
    chosen = [(names, parts if alike else estimates_of(measured, names)) for names in _chosen(parts)]
    found = [subset(measured, mine, names) for names, mine in chosen]
    return tuple(sorted(found, key=lambda one: (-one.saves.value, len(one.targets), one.targets)))


def subset(measured: Measured, parts: dict[str, Estimate], names: tuple[str, ...]) -> Subset:
    """What compiling `names` saves in one unit, and when it has paid."""
    whole = together(parts, names)
    return Subset(targets=names, saves=whole.saved, break_even=break_evens(measured, names, whole.saved, whole.shapes))


def break_evens(
    measured: Measured, targets: Sequence[str], saved: Interval, shapes: Sequence[str]
) -> dict[str, Interval | None]:
    """By cache, rows after which compiling `targets` has paid; only of caches it was measured with.

    Args:
        measured: what was measured.
        targets: what is compiled.
        saved: seconds of one unit.
        shapes: over which shapes `saved` was taken.
    """
    per_row = scaled(saved, units_per_row(measured, shapes))
    costs = {cache: compile_seconds(measured, targets, cache) for cache in CACHES}
    return {cache: break_even(cost, per_row) for cache, cost in costs.items() if cost is not None}


def unaccounted(measured: Measured) -> dict[str, Interval]:
    """By arm, seconds of one unit of the encoder that lie in none of the targets, and by ``saved`` their difference.

    Empty where the encoder or one of the targets was not timed: their sum is then not that of the parts.
    """
    names = [*measured.targets, ENCODER]
    parts = estimates_of(measured, names)
    if len(parts) < len(names) or not measured.targets:
        return {}
    listed, encoder = together(parts, list(measured.targets)), parts[ENCODER]
    rest = encoder._replace(
        value=encoder.value - listed.value,
        draws=encoder.draws - listed.draws,
    )
    return {
        "eager": rest.interval(lambda seconds: seconds[..., 0]),
        "compiled": rest.interval(lambda seconds: seconds[..., 1]),
        "saved": rest.saved,
    }


def _chosen(parts: dict[str, Estimate]) -> Iterator[tuple[str, ...]]:
    names = tuple(parts)
    if len(names) <= _ALL_SUBSETS_OF:
        for size in range(1, len(names) + 1):
            yield from combinations(names, size)
        return
    best = tuple(name for name, one in parts.items() if one.saved.value > 0)
    without = (tuple(other for other in names if other != name) for name in names)
    yield from dict.fromkeys(filter(None, ((names), best, *((name,) for name in names), *without)))
