"""What changed, aligned by identity: each entry's part of the change, and whether it could be chance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from proctor.trace.diff.noise import Shift, Spread, Verdict, shift, spread, verdict
from proctor.trace.diff.occupied import occupancy_of
from proctor.trace.diff.repeats import Iterations
from proctor.trace.diff.sides import Config, Kind, Shape, Side, Work
from proctor.trace.diff.split import Amount, Split, split

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """Work of one identity on one side; times in ns."""

    calls: int
    total_ns: int
    mean_ns: float
    median_ns: float
    """Over all launches: where they have several shapes, it may be no launch's time, and a mix of shapes moves it."""
    shapes: int = 1
    """Different grids and blocks it was launched with."""
    bytes: int = 0
    bytes_per_second: float | None = None
    """Of copies and memsets, over their summed time; None where nothing was moved."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One identity on both sides.

    Attributes:
        kind: kernel, copy, memset or graph.
        name: the identity: a kernel's normal form, a copy's direction.
        category: from the line-up.
        rule: the line-up's rule that placed it.
        a: what A has of it; None where it has none.
        b: the same of B.
        delta_ns: change of its summed time.
        split: parts of `delta_ns`, see `proctor.trace.diff.split`.
        verdict: what may be said of its time per launch.
        usual_ns: the usual launch in A: medians by shape, weighted as in `typical_ns`.
        typical_ns: shift of the usual launch: difference of medians, by shape, weighted by launches.
        floor_ns: what `typical_ns` must exceed; None with too few launches.
        shapes_changed: whether launches of a grid and block that only one side has matter (over 1 % of its time).
        config_a: what most launches were launched with.
        config_b: the same of B.
        config: differences of the two in words, e.g. ``registers 96 -> 128``.
    """

    kind: Kind
    name: str
    category: str
    rule: str
    a: Tally | None
    b: Tally | None
    delta_ns: int
    split: Split
    verdict: Verdict
    usual_ns: float | None = None
    typical_ns: float | None = None
    floor_ns: float | None = None
    shapes_changed: bool = False
    config_a: Config | None = None
    config_b: Config | None = None
    config: tuple[str, ...] = ()

    @property
    def ratio(self) -> float | None:
        """The usual launch of B over that of A, for the shapes that both have."""
        return 1 + self.typical_ns / self.usual_ns if self.typical_ns is not None and self.usual_ns else None


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A category, an NVTX range, a kind of synchronisation or an API call on both sides."""

    name: str
    a_calls: int
    a_ns: int
    b_calls: int
    b_ns: int

    @property
    def delta_ns(self) -> int:
        """Change of the summed time."""
        return self.b_ns - self.a_ns


def changes(a: Side, b: Side, iterations: Iterations | None) -> tuple[Change, ...]:
    """Everything that ran on a GPU on either side, by how much it changed; `delta_ns` sum to the change of all work."""
    counts = None if iterations is None else (iterations.a, iterations.b)
    keys = dict.fromkeys([*a.works, *b.works])
    found = [_change((a, b), key, counts) for key in keys]
    return tuple(sorted(found, key=lambda change: (-abs(change.delta_ns), change.name)))


def groups(a: dict[str, Amount], b: dict[str, Amount]) -> tuple[Group, ...]:
    """Two tables of amounts side by side, by how much their times changed."""
    nothing = Amount(0, 0)
    rows = [(name, a.get(name, nothing), b.get(name, nothing)) for name in dict.fromkeys([*a, *b])]
    found = [Group(name=n, a_calls=x.calls, a_ns=x.total, b_calls=y.calls, b_ns=y.total) for n, x, y in rows]
    return tuple(sorted(found, key=lambda group: (-abs(group.delta_ns), group.name)))


def of_sum(chosen: Iterable[Change]) -> float:
    """How much the summed time of some changes could differ by chance, ns.

    Floors of a launch times launches; what one kernel does by chance does not depend on another, so squares add. What
    has too few launches to tell adds nothing: the table of changes names it.
    """
    squares = 0.0
    for change in chosen:
        if change.floor_ns is not None and change.a is not None and change.b is not None:
            squares += (change.floor_ns * (change.a.calls + change.b.calls) / 2) ** 2
    return math.sqrt(squares)


def by_category(side: Side) -> dict[str, Amount]:
    """Amounts by category of the line-up; copies and memsets are categories of their own."""
    found: dict[str, Amount] = {}
    for work in side.works.values():
        before, more = found.get(work.category, Amount(0, 0)), work.amount
        found[work.category] = Amount(before.calls + more.calls, before.total + more.total)
    return found


def _change(sides: tuple[Side, Side], key: tuple[Kind, str], iterations: tuple[int, int] | None) -> Change:
    a, b = (side.works.get(key) for side in sides)
    known = a or b
    assert known is not None
    strata = list(_strata(a, b))
    parts = [split(_amount(s.a), _amount(s.b), iterations) for s in strata]
    total = Split()
    for part in parts:
        total = total.plus(part)
    judged = _judged(strata)
    config_a, config_b = _usual(a), _usual(b)
    return Change(
        kind=known.kind,
        name=known.name,
        category=known.category,
        rule=known.rule,
        a=_tally(a),
        b=_tally(b),
        delta_ns=total.total,
        split=total,
        verdict=Verdict.ONE_SIDE if a is None or b is None else judged.verdict,
        usual_ns=judged.usual,
        typical_ns=judged.typical,
        floor_ns=judged.floor,
        shapes_changed=_unshared(strata),
        config_a=config_a,
        config_b=config_b,
        config=(*_differences(config_a, config_b), *_occupancies(sides, config_a, config_b)),
    )


class _Stratum(NamedTuple):
    """Launches that are repeats of each other; `shared` is False for the rest, of shapes only one side has."""

    a: NDArray | None  # type: ignore[type-arg]  # of int64
    b: NDArray | None  # type: ignore[type-arg]
    shared: bool


def _strata(a: Work | None, b: Work | None) -> Iterator[_Stratum]:
    import numpy as np

    ones: dict[Shape, NDArray[np.int64]] = a.launches if a else {}
    twos: dict[Shape, NDArray[np.int64]] = b.launches if b else {}
    for shape in ones:
        if shape in twos:
            yield _Stratum(ones[shape], twos[shape], shared=True)
    rest_a = [times for shape, times in ones.items() if shape not in twos]
    rest_b = [times for shape, times in twos.items() if shape not in ones]
    if rest_a or rest_b:
        yield _Stratum(
            np.concatenate(rest_a) if rest_a else None, np.concatenate(rest_b) if rest_b else None, shared=False
        )


class _Judged(NamedTuple):
    verdict: Verdict
    usual: float | None = None
    typical: float | None = None
    floor: float | None = None


def _judged(strata: list[_Stratum]) -> _Judged:
    """The shift of the usual launch over all shapes that both sides have, weighted by how often they ran."""
    pairs = [(spread(s.a), spread(s.b)) for s in strata if s.shared and s.a is not None and s.b is not None]
    shifts = [(_weight(a, b), a.median, shift(a, b)) for a, b in pairs]
    enough = [each for each in shifts if verdict(each[2]) is not Verdict.FEW]
    total = sum(weight for weight, _, _ in enough)
    if not total or total < 0.5 * sum(weight for weight, _, _ in shifts):
        return _Judged(Verdict.FEW)
    together = Shift(
        sum(w * s.typical for w, _, s in enough) / total,
        sum(w * s.floor for w, _, s in enough) / total,  # drift is shared by the shapes: floors add, not their squares
        sum(w * s.mean for w, _, s in enough) / total,
        sum(w * s.mean_floor for w, _, s in enough) / total,
    )
    usual = sum(w * median for w, median, _ in enough) / total
    return _Judged(verdict(together), usual, together.typical, together.floor)


def _weight(a: Spread, b: Spread) -> float:
    return (a.launches + b.launches) / 2


def _unshared(strata: Iterable[_Stratum]) -> bool:
    """Whether what ran with shapes of one side only matters."""
    total = {True: 0, False: 0}
    for stratum in strata:
        total[stratum.shared] += _amount(stratum.a).total + _amount(stratum.b).total
    return total[True] > 0 and total[False] > 0.01 * (total[True] + total[False])


def _amount(times: NDArray | None) -> Amount:  # type: ignore[type-arg]
    return Amount(0, 0) if times is None else Amount(len(times), int(times.sum()))


def _tally(work: Work | None) -> Tally | None:
    if work is None:
        return None
    import numpy as np

    amount = work.amount
    return Tally(
        calls=amount.calls,
        total_ns=amount.total,
        mean_ns=amount.total / amount.calls,
        median_ns=float(np.median(work.all)),
        shapes=len(work.launches),
        bytes=work.bytes,
        bytes_per_second=work.bytes / amount.total * 1e9 if work.bytes and amount.total else None,
    )


def _usual(work: Work | None) -> Config | None:
    """What most launches were launched with; of equals the largest, so that A and B choose alike."""
    if work is None or not work.configs:
        return None
    counts: Counter[Config] = work.configs
    return max(counts, key=lambda config: (counts[config], config.grid, config.block, str(config)))


def _differences(a: Config | None, b: Config | None) -> Iterator[str]:
    if a is None or b is None:
        return
    for field, one, two in zip(Config._fields, a, b, strict=True):
        if one != two:
            yield f"{field.replace('_', ' ')} {_shown(one)} -> {_shown(two)}"


def _occupancies(sides: tuple[Side, Side], a: Config | None, b: Config | None) -> Iterator[str]:
    if a == b:  # what another GPU makes of the same launch is no change of the launch
        return
    one, two = occupancy_of(sides[0].gpus, a), occupancy_of(sides[1].gpus, b)
    if one is not None and two is not None and one.share != two.share:
        yield f"theoretical occupancy {one.share:.0%} -> {two.share:.0%}"


def _shown(value: object) -> str:
    if value is None:
        return "unknown"
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
