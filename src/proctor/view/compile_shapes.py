"""A bench's timings shape by shape, and its warm-up rounds beside the rounds that count."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from proctor.compile.estimate import estimate
from proctor.compile.model import Measured, Shape
from proctor.compile.words import counted, seconds, times, times_between
from proctor.view.formats import percent


class ShapeLine(NamedTuple):
    """One target at one shape."""

    shape: str
    share: str
    target: str
    eager: str
    compiled: str
    speedup: str
    rounds: str


class WarmUp(NamedTuple):
    """The first call of one arm, which does not count, beside those that do."""

    target: str
    arm: str
    first: str
    median: str
    factor: str


def shape_lines(measured: Measured) -> list[ShapeLine]:
    """Every target at every shape it was timed at, the shapes in the order of the workload."""
    timed = list(dict.fromkeys(one.target for one in measured.timings))
    lines = [_shape(measured, shape, target) for shape in measured.shapes for target in timed]
    return [line for line in lines if line is not None]


def _shape(measured: Measured, shape: Shape, target: str) -> ShapeLine | None:
    found = estimate(measured, target, [shape.name])
    if found is None or min(found.value.min(), found.draws.min()) <= 0:
        return None
    return ShapeLine(
        shape=shape.name,
        share=percent(shape.share),
        target=target,
        eager=seconds(float(found.value[0])),
        compiled=seconds(float(found.value[1])),
        speedup=times_between(found.interval(lambda both: both[..., 0] / both[..., 1])),
        rounds=f"{counted(found.rounds, 'round')} in {counted(found.processes, 'process')}",
    )


def warm_ups(measured: Measured) -> list[WarmUp]:
    """By target and arm: the slowest first warm-up round over processes and shapes, against its own median later."""
    found: dict[tuple[str, str], tuple[float, float]] = {}
    first: dict[tuple[str, str, str, int], tuple[int, float]] = {}
    later: dict[tuple[str, str, str, int], list[float]] = {}
    for one in measured.timings:
        key = one.target, str(one.arm), one.shape, one.process
        if one.round >= 0:
            later.setdefault(key, []).append(one.seconds)
        elif key not in first or one.round < first[key][0]:
            first[key] = one.round, one.seconds
    for key, (_, taken) in first.items():
        median = float(np.median(later.get(key, [0.0])))
        known = found.get(key[:2])
        if median > 0 and (known is None or taken / median > known[0] / known[1]):
            found[key[:2]] = taken, median
    return [
        WarmUp(target, arm, seconds(taken), seconds(median), times(taken / median))
        for (target, arm), (taken, median) in sorted(found.items())
    ]
