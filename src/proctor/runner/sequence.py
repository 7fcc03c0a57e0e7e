"""One checkpoint after another in the same engines: each is started once, and takes the next checkpoint's weights as it
runs. While it works on one, the next is read into shared memory.

This is a first pass only. Whatever it leaves undone is unanswered, and each checkpoint's own sweeps have it next.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import ray
from pyroaring import BitMap64

from proctor.engines.weights import stamps
from proctor.results import lift_tombstones
from proctor.rows import Event, told
from proctor.runner.cluster import await_room
from proctor.runner.course import Sweep
from proctor.runner.exam import Exam
from proctor.runner.hub import HubClient
from proctor.runner.infer import EngineSetup, Infer
from proctor.runner.placement import placed
from proctor.runner.pool import Pool, closing_all, engine_class, feed
from proctor.runner.progress import Tracker
from proctor.runner.stoppable import Stopped
from proctor.runner.stream import prepared_blocks
from proctor.runner.watch import WatchedSweep
from proctor.supervise.hotswap import HotSwap


@dataclass(frozen=True, slots=True)
class Turn:
    """A checkpoint's time with the engines, and the checkpoint that follows it."""

    setup: EngineSetup
    following: EngineSetup | None


def answer_in_sequence(exam: Exam, open_rows: Mapping[str, BitMap64], tracker: Tracker, hub: HubClient) -> None:
    """Sweeps once over the open rows of each checkpoint, in the same engines."""
    names = list(open_rows)
    engines = await_room(exam.spec)
    with placed(exam.spec, engines) as place:
        kind = engine_class(exam.spec, Sitter, place)
        sitters = [kind.remote(exam.engine_setup(names[0]), hub) for _ in range(engines)]
        with closing_all(sitters):
            for name, following in zip(names, [*names[1:], None], strict=True):
                turn = Turn(exam.engine_setup(name), None if following is None else exam.engine_setup(following))
                ask = partial(_ask, ray.put(turn))
                _sweep(exam, name, open_rows[name], Pool(exam, name, sitters, ask), tracker, hub)
    hub.close_sweep(ended=True)


def _ask(turn: ray.ObjectRef, engine: Any, block: ray.ObjectRef) -> Any:
    return engine.answer.remote(turn, block)


def _sweep(exam: Exam, name: str, todo: BitMap64, pool: Pool, tracker: Tracker, hub: HubClient) -> None:
    lift_tombstones(exam.run.results, name)
    sweep = Sweep(name, 1, exam.spec.stream.block_rows, engines=len(pool.engines))
    hub.emit(Event("sweep.started", count=len(todo), message=f"{name}: in sequence"))
    watched = WatchedSweep(sweep.engines)
    try:
        with tracker.sweeping(sweep, watched), closing(prepared_blocks(exam, sweep, todo, hub)) as blocks:
            feed(blocks, [pool], tracker)
    except Stopped:
        assert watched.verdict is not None
        _cut_short(name, watched.verdict.reason, hub)
    except Exception as error:
        _cut_short(name, f"ended early: {told(error)}", hub)
    tracker.check_held()
    hub.emit(Event("sweep.ended", message=f"{name}: in sequence"))


def _cut_short(name: str, reason: str, hub: HubClient) -> None:
    hub.emit(Event("sweep.cut_short", action="rows left to its own sweeps", message=f"{name}: {reason}"))


class Sitter(Infer):
    """An engine that answers for the checkpoint whose turn it is.

    Every call says whose turn that is, so that an actor which Ray has started anew cannot answer for another.
    """

    def __init__(self, first: EngineSetup, hub: HubClient) -> None:
        seen = stamps(first.config)
        super().__init__(first, hub)
        assert first.swap is not None
        self._hot = HotSwap(
            self._supervisor, first.config, first.swap, self._settings, self._tell, name=self.name, seen=seen
        )
        self._inside = 0
        self._changed = threading.Condition()

    def answer(self, turn: Turn, block: pa.Table) -> pa.Table:
        """A block, answered by the checkpoint whose turn it is."""
        with self._heart.holding(block.num_rows), self._in_turn(turn):
            return self._answered(block)

    def close(self) -> None:
        """Ends the engine, and what is read ahead."""
        hot = getattr(self, "_hot", None)
        if hot is not None:
            hot.close()
        super().close()

    @contextmanager
    def _in_turn(self, turn: Turn) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._inside or self._hot.config == turn.setup.config)
            self._hot.to(turn.setup.config)
            if turn.following is not None:
                self._hot.read_ahead(turn.following.config)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()
