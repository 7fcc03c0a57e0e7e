"""After how many rows compiling has paid for itself, and what a run of a given length gains."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from proctor.compile.estimate import student
from proctor.compile.model import ANSWERS, ENCODER, Interval, Measured

CACHES = ("cold", "warm")


def compile_seconds(measured: Measured, targets: Sequence[str], cache: str) -> Interval | None:
    """Seconds that compiling `targets` takes in a process, with the cache of the compiler `cold` or `warm`.

    The whole encoder and the answers may have compilations of their own; otherwise, and for several targets, those of
    the targets are summed. The interval is Student's, over processes; where one process was seen it has no bounds.
    None where it was not measured for one of the targets.
    """
    costs = [_seconds(measured, target, cache) for target in _apart(measured, targets, cache)]
    if not costs or not all(costs):
        return None
    value = sum(float(np.mean(seconds)) for seconds in costs)
    if any(len(seconds) < 2 for seconds in costs):
        return Interval(value)
    halves = [student(len(s) - 1) * float(np.std(s, ddof=1)) / math.sqrt(len(s)) for s in costs]
    half = math.hypot(*halves)
    return Interval(value, max(0.0, value - half), value + half)


def break_even(cost: Interval, saved: Interval) -> Interval | None:
    """Rows after which `cost`, in seconds, is paid by `saved`, in seconds a row; None where nothing is saved.

    The interval is that of the ratio of two independent estimates by their own bounds; for symmetrical bounds it is
    Fieller's. It has no upper bound where nothing may be saved. A cost without bounds (measured once) counts as exact,
    which the verdict flags.

    A. Donner, G. Zou (2012), "Closed-form confidence intervals for functions of the normal mean and standard
    deviation", Statistical Methods in Medical Research 21, 347-359; E. Fieller (1954), JRSS B 16, 175-185.
    """
    if saved.value <= 0:
        return None
    rows = cost.value / saved.value
    if saved.low is None or saved.high is None:
        return Interval(rows)
    dearest, cheapest = _half(cost), cost.value - (cost.value if cost.low is None else cost.low)
    half = saved.value - saved.low
    if saved.low <= 0:
        return Interval(rows, max(0.0, cost.value - cheapest) / saved.high)
    scale, product = saved.value**2 - half**2, cost.value * saved.value
    if scale <= 0:  # a bound so near to nothing that its square is nothing
        return Interval(rows, max(0.0, cost.value - cheapest) / saved.high)
    below = math.sqrt(max(0.0, product**2 - (cost.value**2 - cheapest**2) * scale))
    above = math.sqrt(max(0.0, product**2 - (cost.value**2 - dearest**2) * scale))
    low, high = (product - below) / scale, (product + above) / scale
    return Interval(rows, max(0.0, low), high if math.isfinite(high) else None)


def net_gain(cost: Interval, saved: Interval, rows: int) -> Interval:
    """Seconds that a run of `rows` gains: what the rows save less what compiling takes."""
    value = rows * saved.value - cost.value
    if saved.low is None:
        return Interval(value)
    half = math.hypot(rows * (saved.value - saved.low), _half(cost))
    return Interval(value, value - half, value + half)


def ahead(net: Interval) -> bool | None:
    """Whether the gain is one; None where its interval covers zero or has no bounds."""
    if net.low is None or net.high is None or net.low <= 0 <= net.high:
        return None
    return net.low > 0


def scaled(saved: Interval, factor: float) -> Interval:
    """Seconds of another unit: `factor` of them make one."""
    low, high = (None if bound is None else bound * factor for bound in (saved.low, saved.high))
    return Interval(saved.value * factor, low, high)


def _half(cost: Interval) -> float:
    return 0.0 if cost.high is None else cost.high - cost.value


def _apart(measured: Measured, targets: Sequence[str], cache: str) -> tuple[str, ...]:
    """Whose compilations make up those of `targets`."""
    whole = set(targets) & {ENCODER, ANSWERS} or set(targets) == set(measured.targets)
    if not whole:
        return tuple(targets)
    mine = next(
        (t for t in (*targets, ANSWERS, ENCODER) if t in (ENCODER, ANSWERS) and _seconds(measured, t, cache)), ""
    )
    return (mine,) if mine else tuple(measured.targets)


def _seconds(measured: Measured, target: str, cache: str) -> list[float]:
    """By process. Compiling that took less than the noise of the first calls took no time."""
    found = [one for one in measured.compilations if one.target == target and one.cache == cache]
    return [max(0.0, one.seconds) for one in found]
