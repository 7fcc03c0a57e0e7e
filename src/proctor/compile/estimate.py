"""Medians of timings over rounds, shapes and processes, and what another bench would have found instead.

Timings nest: rounds within processes. Two rounds of one process share its memory layout, its compiled code and its
neighbours, so many rounds of few processes say little about the next process. Both levels are bootstrapped, and the
wider one counts: processes drawn again show all the noise there is (that of the rounds is in them), but few of them may
be close to each other by luck, and rounds drawn again say how close they can be expected. Student's t, with as many
degrees of freedom as there are processes less one, makes up for how few they are. A bench that adds processes for what
is open after a first look has two chances to take noise for an effect: each then gets half of the 5 % (Bonferroni).

T. Kalibera, R. Jones (2013), "Rigorous benchmarking in reasonable time", ISMM, on repetition at the highest level;
A. Davison, D. Hinkley (1997), "Bootstrap methods and their application", section 3.8, on data that nest.
"""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proctor.compile.model import Interval, Measured, Shape, Timing
from proctor.rows import UserError

CONFIDENCE = 0.95
DRAWS = 500
_SEED = 20_260
_MOST_PROCESSES = 1_000
"""More than so many processes nobody will run to decide on one target."""

Array = NDArray[np.float64]
Cells = dict[int, dict[str, Array]]
"""By process and shape: (rounds, 2) seconds of one unit, eager and compiled in the same round."""


class Estimate(NamedTuple):
    """Seconds of one mean unit of a target, in the proportions of the workload.

    Attributes:
        shapes: those that every process used here has timed.
        covered: share of the workload's rows that look like these, 0 to 1.
        numbers: of the processes that were used.
        rounds: the most that any of them has at one shape.
        looks: see `proctor.compile.model.Measured`.
        value: (2,) eager and compiled: the mean over the processes of medians over their rounds.
        draws: (2, draws, 2) the same of resampled processes, and of the same processes with resampled rounds.
    """

    shapes: tuple[str, ...]
    covered: float
    numbers: tuple[int, ...]
    rounds: int
    looks: int
    value: Array
    draws: Array

    @property
    def processes(self) -> int:
        """How many were used."""
        return len(self.numbers)

    @property
    def saved(self) -> Interval:
        """Seconds that one unit saves."""
        return self.interval(lambda seconds: seconds[..., 0] - seconds[..., 1])

    @property
    def once(self) -> bool:
        """Whether the noise between processes is unknown, so that nothing can be concluded."""
        return self.processes < 2

    def interval(self, what: Callable[[Array], Array]) -> Interval:
        """A figure made of (…, 2) seconds, with its interval."""
        return interval(float(what(self.value)), what(self.draws), self.processes, self.looks)

    def more_rounds(self, enough: float = 0.0) -> int | None:
        """Rounds in further processes, as long as these, after which the saving seen would differ from nothing.

        Args:
            enough: seconds of one unit; a saving that is smaller beyond doubt need not differ from nothing.
        """
        saved = self.saved
        if saved.low is None or (saved.value == 0 and not enough):
            return None
        error = (saved.value - saved.low) / student(self.processes - 1, self.looks)
        for processes in range(self.processes + 1, _MOST_PROCESSES + 1):
            half = student(processes - 1, self.looks) * error * math.sqrt(self.processes / processes)
            if abs(saved.value) > half or saved.value + half < enough:
                return (processes - self.processes) * self.rounds
        return None


def student(degrees: int, looks: int = 1) -> float:
    """Student's t that leaves 2.5 % above it, or with several looks as much less.

    Raises:
        UserError: scipy is not there.
    """
    try:
        from scipy.special import stdtrit
    except ImportError:
        raise UserError(
            "intervals need scipy, which cannot be imported", where="proctor compile", fix="install `proctor[compile]`"
        ) from None
    return float(stdtrit(degrees, 1 - (1 - CONFIDENCE) / 2 / looks))


def interval(value: float, draws: Array, processes: int, looks: int) -> Interval:
    """`value` ± t · s, with s the larger deviation of (2, draws) figures, see `Estimate.draws`.

    That of processes is multiplied by sqrt(P / (P - 1)), because P resampled ones vary by less than processes do. No
    bounds for one process: what the next one would show is not known.
    """
    if processes < 2:
        return Interval(value)
    of_processes, of_rounds = (float(one) for one in np.std(draws, axis=1))
    half = student(processes - 1, looks) * max(of_processes * math.sqrt(processes / (processes - 1)), of_rounds)
    return Interval(value, value - half, value + half) if math.isfinite(half) else Interval(value)


def weights(shapes: Sequence[Shape]) -> dict[str, float]:
    """Units of each shape in one row of the workload: the share of its rows over the rows of one unit, by name.

    Without a known share every shape counts alike.
    """
    known = sum(shape.share for shape in shapes)
    shares = {shape.name: shape.share / known if known > 0 else 1 / len(shapes) for shape in shapes}
    return {shape.name: shares[shape.name] / max(1, shape.rows) for shape in shapes}


def units_per_row(measured: Measured, names: Sequence[str]) -> float:
    """Mean units of one row of the workload, by the shapes `names`; 0 where there are none."""
    return sum(weights([shape for shape in measured.shapes if shape.name in names]).values())


def paired(timings: Sequence[Timing], target: str) -> Cells:
    """Rounds of `target` in which both arms were timed, warm-up left out.

    An arm that was timed more than once in a round counts with the mean over its calls.
    """
    found: dict[tuple[int, str, int], dict[str, list[Timing]]] = defaultdict(lambda: defaultdict(list))
    for one in timings:
        if one.target == target and one.round >= 0:
            found[one.process, one.shape, one.round][one.arm].append(one)
    rows: dict[int, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for (process, shape, _), arms in sorted(found.items()):
        if len(arms) == 2:
            rows[process][shape].append((_mean(arms["eager"]), _mean(arms["compiled"])))
    return {process: {shape: np.array(pairs) for shape, pairs in by.items()} for process, by in rows.items()}


def estimate(
    measured: Measured, target: str, shapes: Sequence[str] | None = None, processes: Collection[int] | None = None
) -> Estimate | None:
    """The time of `target`; None where it was not timed, or at no shape of the workload.

    Args:
        measured: what was measured.
        target: a target, the encoder or the answers.
        shapes: only these. Default: as many as there are.
        processes: only these. Default: all.
    """
    unit = {s.name: s for s in measured.shapes if shapes is None or s.name in shapes}
    cells = {
        process: {shape: pairs for shape, pairs in by.items() if shape in unit}
        for process, by in paired(measured.timings, target).items()
        if processes is None or process in processes
    }
    # Processes that have not timed some shape would mix what they cost with what the shapes cost: the most shapes win.
    most = max((sum(unit[s].share for s in by), len(by), tuple(sorted(by))) for by in cells.values()) if cells else None
    if most is None or not most[1]:
        return None
    names = most[2]
    used = {process: by for process, by in cells.items() if set(names) <= set(by)}
    per_unit = weights([unit[name] for name in names])
    weight = np.array([per_unit[name] for name in names]) / sum(per_unit.values())
    everything = sum(shape.share for shape in measured.shapes)
    return Estimate(
        shapes=names,
        covered=sum(unit[name].share for name in names) / everything if everything > 0 else 1.0,
        numbers=tuple(sorted(used)),
        rounds=max(len(pairs) for by in used.values() for pairs in by.values()),
        looks=max(1, measured.looks),
        value=_value(used, names, weight).mean(axis=0),
        draws=_draws(used, names, weight, target),
    )


def _mean(timings: Sequence[Timing]) -> float:
    calls = sum(one.calls for one in timings)
    return sum(one.seconds * one.calls for one in timings) / calls if calls else 0.0


def _value(cells: Cells, names: Sequence[str], weight: Array) -> Array:
    """(processes, 2)."""
    found = [[typical(cells[process][name]) for name in names] for process in sorted(cells)]
    return np.asarray(np.einsum("psa,s->pa", np.array(found), weight))


def _draws(cells: Cells, names: Sequence[str], weight: Array, target: str) -> Array:
    """(2, draws, 2): processes drawn again, for all targets alike; and rounds drawn again, in each process."""
    processes = sorted(cells)
    picks = np.random.default_rng([_SEED, *processes]).integers(len(processes), size=(DRAWS, len(processes)))
    of_processes = _value(cells, names, weight)[picks].mean(axis=1)
    rng = np.random.default_rng([_SEED, zlib.crc32(target.encode())])
    of_rounds = np.zeros((DRAWS, 2))
    for process in processes:
        for name, share in zip(names, weight, strict=True):
            pairs = cells[process][name]
            rounds = rng.integers(len(pairs), size=(DRAWS, len(pairs)))
            of_rounds += share / len(processes) * typical(pairs[rounds])
    return np.stack([of_processes, of_rounds])


def typical(pairs: Array) -> Array:
    """(…, 2) seconds that stand for (…, rounds, 2): their level and the ratio of the arms, each by its own median.

    Load that comes and goes makes both arms of a round slower by the same factor: it is in the level, and not in the
    ratio. Medians of each arm by itself would be of different rounds, and their difference as uncertain as the load.
    """
    if pairs.min() <= 0:  # the clock shows no time: there are no ratios
        return np.asarray(np.median(pairs, axis=-2))
    roots = np.sqrt(pairs)
    level = np.median(roots[..., 0] * roots[..., 1], axis=-1)
    ratio = np.median(roots[..., 0] / roots[..., 1], axis=-1)
    return np.stack([level * ratio, level / ratio], axis=-1)


def together(parts: Mapping[str, Estimate], names: Sequence[str]) -> Estimate:
    """Targets one after the other: the sum of their times, where all of them are over the same processes."""
    some = [parts[name] for name in names]
    return some[0]._replace(
        covered=min(one.covered for one in some),
        rounds=min(one.rounds for one in some),
        value=np.sum([one.value for one in some], axis=0),
        draws=np.sum([one.draws for one in some], axis=0),
    )
