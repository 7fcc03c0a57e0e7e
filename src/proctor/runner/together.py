"""Several checkpoints over one preparation: each block is read and prepared once, and goes by reference to the engines
of every checkpoint. Nothing is copied for them: on a node they all read the same pages of the object store.

This is a first pass only. Whatever it leaves undone is unanswered, and each checkpoint's own sweeps have it next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
import pyarrow as pa
import ray
from pyroaring import BitMap64
from ray.exceptions import RayError

from proctor.results import lift_tombstones
from proctor.rows import ErrorKind, Event, told
from proctor.runner.course import Sweep, Swept
from proctor.runner.exam import Exam
from proctor.runner.finish import Desk, finish
from proctor.runner.hub import HubClient
from proctor.runner.infer import Infer
from proctor.runner.placement import engine_resources, placed
from proctor.runner.progress import Tracker
from proctor.runner.stoppable import Stopped
from proctor.runner.stream import TASK_RETRIES, prepared_blocks, ray_names, tally_of
from proctor.runner.watch import WatchedSweep

_CLOSE_SECONDS = 10.0
_WAIT_SECONDS = 0.5
_ALL_RESTARTS = -1


def answer_together(exam: Exam, open_rows: Mapping[str, BitMap64], tracker: Tracker, hub: HubClient) -> None:
    """Sweeps once over the rows that any of these checkpoints has open, with engines for all of them side by side."""
    names, todo = list(open_rows), reduce(or_, open_rows.values())
    for name in names:
        lift_tombstones(exam.run.results, name)
    sweep = Sweep(names[0], 1, exam.spec.stream.block_rows, engines=exam.spec.engine.replicas * len(names))
    hub.emit(Event("sweep.started", count=len(todo), message=f"{', '.join(names)}: together"))
    swept = _swept(exam, sweep, open_rows, todo, tracker, hub)
    tracker.check_held()
    hub.close_sweep(ended=not (swept.failed or swept.halted))
    hub.emit(Event("sweep.ended", message=f"{', '.join(names)}: together"))


def _swept(
    exam: Exam, sweep: Sweep, open_rows: Mapping[str, BitMap64], todo: BitMap64, tracker: Tracker, hub: HubClient
) -> Swept:
    watched = WatchedSweep(sweep.engines)
    try:
        with (
            tracker.sweeping(sweep, watched, tuple(open_rows)),
            closing(prepared_blocks(exam, sweep, todo, hub)) as blocks,
            _pools(exam, sweep, open_rows, hub) as pools,
        ):
            _feed(blocks, pools, tracker)
        return Swept()
    except Stopped:
        assert watched.verdict is not None
        reason, swept = watched.verdict
    except Exception as error:
        reason, swept = f"ended early: {told(error)}", Swept(failed=True)
    hub.emit(Event("sweep.cut_short", action="rows left to each checkpoint's sweeps", message=f"together: {reason}"))
    return swept


def _feed(blocks: Iterator[ray.ObjectRef], pools: Sequence[Pool], tracker: Tracker) -> None:
    """Hands every block to every pool that works. The fullest one sets the pace, so that few blocks are kept."""
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


class Answerer(Infer):
    """An engine that answers those rows of a block that its checkpoint has open."""

    def __init__(self, open_rows: bytes, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._open = BitMap64.deserialize(open_rows)

    def answer(self, block: pa.Table) -> pa.Table:
        """The open rows of `block`, answered."""
        mine = [row in self._open for row in block["row_id"].to_pylist()]
        return self(block if all(mine) else block.filter(pa.array(mine)))


class Pool:
    """The engines of one checkpoint.

    Attributes:
        waiting: blocks that are under way, by the reference to their tally, with the engine that has them.
    """

    def __init__(
        self, exam: Exam, checkpoint: str, open_rows: BitMap64, hub: HubClient, place: Mapping[str, Any]
    ) -> None:
        spec = exam.spec
        self.checkpoint, self._most = checkpoint, spec.stream.blocks_in_flight
        desk = Desk(exam.run.folder, checkpoint, 1, exam.task, spec.limits.row_seconds)
        self._finish = ray.remote(num_cpus=spec.stream.prepare_cpus, max_retries=TASK_RETRIES)(finish)
        self._desk = ray.put(desk)
        engine = ray.remote(Answerer).options(
            max_restarts=_ALL_RESTARTS,
            max_task_retries=TASK_RETRIES,
            max_concurrency=self._most + 1,
            **ray_names(engine_resources(spec)),
            **place,
        )
        setup, rows = exam.engine_setup(checkpoint), open_rows.serialize()
        self.engines = [engine.remote(rows, setup, hub) for _ in range(spec.engine.replicas)]
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
        answered = self.engines[chosen].answer.remote(block)
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


def _sent_back(tally: Mapping[str, Any]) -> bool:
    return tally["rows"] > 0 and tally_of(tally, ErrorKind.ENGINE_INIT_FAILED) == tally["rows"]


@contextmanager
def _pools(exam: Exam, sweep: Sweep, open_rows: Mapping[str, BitMap64], hub: HubClient) -> Iterator[list[Pool]]:
    """Engines for every checkpoint, closed in good order when the block ends."""
    with placed(exam.spec, sweep.engines) as place:
        pools = [Pool(exam, name, rows, hub, place) for name, rows in open_rows.items()]
        try:
            yield pools
        finally:
            closed = [engine.close.remote() for pool in pools for engine in pool.engines]
            with suppress(RayError):
                ray.wait(closed, num_returns=len(closed), timeout=_CLOSE_SECONDS)
