"""A published comparison as data, to be judged by the same rules as what is measured here."""

from __future__ import annotations

import tomllib
from importlib import resources

from proctor.compile.model import ANSWERS, ArmName, Compilation, Measured, Shape, Timing

_ARMS: tuple[ArmName, ArmName] = ("eager", "compiled")


def published() -> Measured:
    """What ``published.toml`` says: single figures of each arm, one process, one round."""
    text = resources.files("proctor.compile").joinpath("published.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    workload = table["workload"]
    per_call = workload["rows_per_call"]
    milliseconds = {name: [value / 1e3 for value in pair] for name, pair in table["milliseconds"].items()}
    rates = {name: [per_call / value for value in pair] for name, pair in table["samples_per_second"].items()}
    before, after = table["load_seconds"][ANSWERS]
    name = f"{per_call} {workload['image']}"
    return Measured(
        subject=table["subject"],
        targets=table["modules"],
        shapes=(Shape(name=name, images=per_call, patches=0, rows=per_call, share=1.0),),
        timings=tuple(
            Timing(target=target, shape=name, arm=arm, process=0, round=0, seconds=value)
            for target, pair in {**milliseconds, **rates}.items()
            for arm, value in zip(_ARMS, pair, strict=True)
        ),
        compilations=(Compilation(target=ANSWERS, process=0, cache="cold", seconds=after - before, graphs=None),),
        rows=workload["rows"],
        notes=("single figures: no rounds, no second process, no graphs, no comparison of outputs were published",),
    )
