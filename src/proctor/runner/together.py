"""Several checkpoints over one preparation: each block is read and prepared once, and goes by reference to the engines
of every checkpoint. Nothing is copied for them: on a node they all read the same pages of the object store.

This is a first pass only. Whatever it leaves undone is unanswered, and each checkpoint's own sweeps have it next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import reduce
from operator import or_
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from proctor.results import lift_tombstones
from proctor.rows import Event, told
from proctor.runner.course import Sweep, Swept
from proctor.runner.exam import Exam
from proctor.runner.hub import HubClient
from proctor.runner.infer import Infer
from proctor.runner.placement import placed
from proctor.runner.pool import Pool, closing_all, engine_class, feed
from proctor.runner.progress import Tracker
from proctor.runner.stoppable import Stopped
from proctor.runner.stream import prepared_blocks
from proctor.runner.watch import WatchedSweep


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
            feed(blocks, pools, tracker)
        return Swept()
    except Stopped:
        assert watched.verdict is not None
        reason, swept = watched.verdict
    except Exception as error:
        reason, swept = f"ended early: {told(error)}", Swept(failed=True)
    hub.emit(Event("sweep.cut_short", action="rows left to each checkpoint's sweeps", message=f"together: {reason}"))
    return swept


class Answerer(Infer):
    """An engine that answers those rows of a block that its checkpoint has open."""

    def __init__(self, open_rows: bytes, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._open = BitMap64.deserialize(open_rows)

    def answer(self, block: pa.Table) -> pa.Table:
        """The open rows of `block`, answered."""
        mine = [row in self._open for row in block["row_id"].to_pylist()]
        return self(block if all(mine) else block.filter(pa.array(mine)))


@contextmanager
def _pools(exam: Exam, sweep: Sweep, open_rows: Mapping[str, BitMap64], hub: HubClient) -> Iterator[list[Pool]]:
    """Engines for every checkpoint, closed in good order when the block ends."""
    with placed(exam.spec, sweep.engines) as place:
        kind = engine_class(exam.spec, Answerer, place)
        pools = []
        for name, rows in open_rows.items():
            setup, wanted = exam.engine_setup(name), rows.serialize()
            engines = [kind.remote(wanted, setup, hub) for _ in range(exam.spec.engine.replicas)]
            pools.append(Pool(exam, name, engines, lambda engine, block: engine.answer.remote(block)))
        with closing_all([engine for pool in pools for engine in pool.engines]):
            yield pools
