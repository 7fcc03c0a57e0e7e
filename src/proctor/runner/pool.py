"""Engines beside a stream: blocks are handed to them by reference, and tasks of Ray write what comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError

from proctor.rows import ErrorKind
from proctor.runner.exam import Exam
from proctor.runner.finish import Desk, finish
from proctor.runner.placement import engine_resources
from proctor.runner.progress import Tracker
from proctor.runner.stream import TASK_RETRIES, ray_names, tally_of
from proctor.spec import RunSpec

_CLOSE_SECONDS = 10.0
_WAIT_SECONDS = 0.5
_ALL_RESTARTS = -1

Ask = Callable[[Any, ray.ObjectRef], ray.ObjectRef]
"""Hands a block to an engine's actor: gives the reference to the answered block."""


def engine_class(spec: RunSpec, kind: type, place: Mapping[str, Any]) -> Any:
    """`kind` as an actor class with the resources of one engine, several of whose calls run at once."""
    return ray.remote(kind).options(
        max_restarts=_ALL_RESTARTS,
        max_task_retries=TASK_RETRIES,
        max_concurrency=spec.stream.blocks_in_flight + 1,
        **ray_names(engine_resources(spec)),
        **place,
    )


class Pool:
    """The engines of one checkpoint.

    Attributes:
        waiting: blocks that are under way, by the reference to their tally, with the engine that has them.
    """

    def __init__(self, exam: Exam, checkpoint: str, engines: Sequence[Any], ask: Ask) -> None:
        spec = exam.spec
        self.checkpoint, self.engines, self._ask = checkpoint, engines, ask
        self._most = spec.stream.blocks_in_flight
        self._finish = ray.remote(num_cpus=spec.stream.prepare_cpus, max_retries=TASK_RETRIES)(finish)
        self._desk = ray.put(Desk(exam.run.folder, checkpoint, 1, exam.task, spec.limits.row_seconds))
        self.waiting: dict[ray.ObjectRef, int] = {}
        self._given_up = False

    @property
    def is_full(self) -> bool:
        """Whether no engine takes another block now."""
        return not self._given_up and len(self.waiting) >= self._most * len(self.engines)

    def take(self, block: ray.ObjectRef) -> None:
        """Hands a block to the engine that has the fewest; nothing happens when all engines are out of order."""
        if self._given_up:
            return
        load = np.bincount(list(self.waiting.values()), minlength=len(self.engines))
        chosen = int(load.argmin())
        answered = self._ask(self.engines[chosen], block)
        self.waiting[self._finish.remote(answered, desk=self._desk)] = chosen

    def finished(self, ref: ray.ObjectRef) -> list[dict[str, Any]]:
        """The tally of a block; nothing if it was lost, which leaves its rows open."""
        del self.waiting[ref]
        try:
            tallies = ray.get(ref).to_pylist()
        except RayError:
            return []
        self._given_up = self._given_up or all(_sent_back(tally) for tally in tallies)
        return tallies


def feed(blocks: Iterator[ray.ObjectRef], pools: Sequence[Pool], tracker: Tracker) -> None:
    """Hands every block to every pool that works. The fullest one sets the pace, so that few blocks are kept.

    Raises:
        OSError: records cannot be written.
    """
    for block in blocks:
        for pool in pools:
            while pool.is_full:
                _collect(pools, tracker)
            pool.take(block)
    while any(pool.waiting for pool in pools):
        _collect(pools, tracker)


def _collect(pools: Sequence[Pool], tracker: Tracker) -> None:
    """Waits a moment for tallies, and adds them up."""
    waiting = {ref: pool for pool in pools for ref in pool.waiting}
    ready, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=0)
    if not ready:
        ready, _ = ray.wait(list(waiting), num_returns=1, timeout=_WAIT_SECONDS)
    for ref in ready:
        for tally in waiting[ref].finished(ref):
            if tally["trouble"]:
                raise OSError(tally["trouble"])
            tracker.add(waiting[ref].checkpoint, tally)


@contextmanager
def closing_all(engines: Sequence[Any]) -> Iterator[None]:
    """Closes engines in good order when the block ends."""
    try:
        yield
    finally:
        closed = [engine.close.remote() for engine in engines]
        with suppress(RayError):
            ray.wait(closed, num_returns=len(closed), timeout=_CLOSE_SECONDS)


def _sent_back(tally: dict[str, Any]) -> bool:
    return tally["rows"] > 0 and tally_of(tally, ErrorKind.ENGINE_INIT_FAILED) == tally["rows"]
