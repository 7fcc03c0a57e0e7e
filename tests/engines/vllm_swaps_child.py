"""Runs in vLLM's environment: steps with one engine after another. Usage: vllm_swaps_child.py STEPS OUTCOMES."""

from __future__ import annotations

import contextlib
import functools
import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import msgspec

from proctor.engines.base import Engine, EngineConfig, IterFeed
from proctor.engines.fingerprint import Fingerprint, asked_of, fingerprint
from proctor.engines.registry import make_engine
from proctor.rows import Request, Response


class Step(msgspec.Struct):
    """What to do, and what to answer afterwards.

    Attributes:
        do: start a new engine, or swap the one that runs.
        config: its configuration.
        weights: path of published weights.
        without: functions (``module:name`` or ``module:Class.name``) that do nothing meanwhile: what a careless swap
            leaves out.
        requests: are answered together, after the probes.
        told: whether anything is asked.
        replaced: before all this the first file is put in the place of the second.
    """

    do: Literal["start", "swap"]
    config: EngineConfig
    weights: str = ""
    without: list[str] = []
    requests: list[Request] = []
    told: bool = True
    replaced: tuple[str, str] | None = None


class Outcome(msgspec.Struct):
    """What came of a step: the exception (type, message) if there was one, and the answers.

    `mapped` counts mappings of published weights that the process still has.
    """

    error: tuple[str, str] | None = None
    fingerprint: Fingerprint | None = None
    responses: list[Response] = []
    unanswerable: str = ""
    mapped: int = 0


@contextlib.contextmanager
def left_out(names: Sequence[str]) -> Iterator[None]:
    kept: list[tuple[Any, str, Any]] = []
    for name in names:
        module, _, path = name.partition(":")
        *owners, function = path.split(".")
        home = functools.reduce(getattr, owners, import_module(module))
        kept.append((home, function, getattr(home, function)))
        setattr(home, function, lambda *ignored, **named: 1)
    try:
        yield
    finally:
        for home, function, own in kept:
            setattr(home, function, own)


def changed(engine: Engine | None, step: Step) -> Engine:
    if step.do == "start":
        if engine is not None:
            engine.close()
        engine = make_engine(step.config)
        engine.check()
        engine.load()
    elif engine is not None:
        with left_out(step.without):
            engine.swap(step.config, step.weights)
    assert engine is not None
    return engine


def outcomes(steps: Sequence[Step]) -> Iterator[Outcome]:
    engine: Engine | None = None
    for step in steps:
        outcome = Outcome()
        if step.replaced:
            source, target = map(Path, step.replaced)
            shutil.copyfile(source, target.with_suffix(".new"))
            target.with_suffix(".new").replace(target)
        try:
            engine = changed(engine, step)
        except Exception as error:
            outcome.error = (type(error).__name__, str(error))
        if step.told and engine is not None:
            try:
                outcome.fingerprint = fingerprint(asked_of(engine))
                outcome.responses = sorted(
                    engine.stream(IterFeed(iter(step.requests)), lambda tokens: None), key=lambda response: response.id
                )
            except Exception as error:
                outcome.unanswerable = str(error)
        outcome.mapped = Path("/proc/self/maps").read_text().count("proctor-weights")
        yield outcome
    if engine is not None:
        engine.close()


def main(source: str, target: str) -> None:
    steps = msgspec.msgpack.decode(Path(source).read_bytes(), type=list[Step])
    Path(target).write_bytes(msgspec.msgpack.encode(list(outcomes(steps))))


if __name__ == "__main__":
    main(*sys.argv[1:])
