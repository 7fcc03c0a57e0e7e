"""Benches with a known truth: what each arm really takes, how noisy it is, and what compiling costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from proctor.compile.model import (
    ANSWERS,
    ENCODER,
    Agreement,
    ArmName,
    Compilation,
    Finding,
    Measured,
    Shape,
    Timing,
    Verdict,
)
from proctor.compile.verdict import verdict

SHAPES = (
    Shape(name="1 image of 224x224", images=1, patches=256, rows=1, share=0.75),
    Shape(name="4 images of 224x224", images=4, patches=1024, rows=4, share=0.25),
)
ARMS: tuple[ArmName, ArmName] = ("eager", "compiled")
FASTER = {"embed": (2e-4, 2.5e-4), "blocks": (9e-2, 8e-2), "merger": (3e-3, 4e-3), ENCODER: (0.1, 0.092)}
COST = {"cold": 20.0, "warm": 2.0}


def invented(
    truth: Mapping[str, tuple[float, float]],
    *,
    seed: int = 0,
    processes: int = 4,
    rounds: int = 12,
    between: float = 0.0,
    within: float = 0.01,
    shared: float = 0.0,
    shapes: tuple[Shape, ...] = SHAPES,
    cost: Mapping[str, float] | None = None,
    rows: int | None = 10_000_000,
    **more: Any,
) -> Measured:
    """A bench of targets that take `truth` seconds at a unit of one image, four times that at four.

    Args:
        truth: by target (the encoder and the answers may be among them), seconds eager and compiled.
        seed: of the noise.
        processes, rounds: how many of each.
        between: deviation of an arm from process to process, relative; each arm's own.
        within: of a single timing.
        shared: of a round, both arms alike: load that comes and goes.
        shapes: of the workload.
        cost: seconds of compiling a target by cache, give or take 3 %.
        rows: of the planned run.
        more: what else the bench says, in place of one warm-up round, agreements that passed, and two graphs each.
    """
    rng = np.random.default_rng(seed)
    targets = {name: 1 for name in truth if name not in (ENCODER, ANSWERS)}
    made = {
        "timings": tuple(_timings(rng, truth, shapes, processes, rounds, between, within, shared)),
        "compilations": tuple(_compilations(rng, list(targets), processes, COST if cost is None else cost)),
        "agreements": tuple(agreement(name, shape.name) for name in targets or [ENCODER] for shape in shapes),
    }
    return Measured(subject={"model": "invented"}, targets=targets, shapes=shapes, rows=rows, **{**made, **more})


def agreement(target: str, shape: str, **more: Any) -> Agreement:
    """Outputs that agree, unless told otherwise."""
    fine: dict[str, Any] = {
        "level": "inductor",
        "error_eager": 1e-7,
        "error_compiled": 1.1e-7,
        "bitwise": 0.1,
        "largest": 4e-7,
        "steady_eager": True,
        "steady_compiled": True,
        "passed": True,
    }
    return Agreement(target=target, shape=shape, **{**fine, **more})


def _timings(
    rng: np.random.Generator,
    truth: Mapping[str, tuple[float, float]],
    shapes: tuple[Shape, ...],
    processes: int,
    rounds: int,
    between: float,
    within: float,
    shared: float,
) -> Iterator[Timing]:
    for process in range(processes):
        for target, seconds in truth.items():
            lasting = np.exp(rng.normal(0, between, 2))
            for shape in shapes:
                for number in range(-1, rounds):
                    load = math.exp(rng.normal(0, shared))
                    for arm, one, drift in zip(ARMS, seconds, lasting, strict=True):
                        taken = one * shape.images * drift * load * math.exp(rng.normal(0, within))
                        yield Timing(target, shape.name, arm, process, number, float(taken))


def _compilations(
    rng: np.random.Generator, targets: list[str], processes: int, cost: Mapping[str, float]
) -> Iterator[Compilation]:
    for target in targets:
        for process in range(processes):
            for cache in ("cold", "warm"):
                if cache in cost:
                    seconds = cost[cache] * math.exp(rng.normal(0, 0.03))
                    yield Compilation(target=target, process=process, cache=cache, seconds=float(seconds), graphs=1)


def of(found: Verdict, target: str) -> Finding:
    """The finding on one target."""
    return next(one for one in found.findings if one.target == target)


def judged(truth: Any = None, **more: Any) -> Verdict:
    """The verdict on an invented bench."""
    return verdict(invented(FASTER if truth is None else truth, **more))
