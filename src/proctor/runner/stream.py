"""One sweep on Ray Data: read -> prepare -> infer -> score and write. The driver sees counts, never rows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Generator, Iterable, Sequence
from typing import Any

import pyarrow as pa
import ray
from pyroaring import BitMap64
from ray.data import ActorPoolStrategy, DataContext, Datasource, ReadTask
from ray.data.block import BlockMetadata
from typing_extensions import override

from proctor.rows import ErrorKind, told
from proctor.runner.course import Sweep
from proctor.runner.exam import Exam
from proctor.runner.finish import Desk, finish
from proctor.runner.hub import HubClient
from proctor.runner.infer import Infer
from proctor.runner.patience import timely
from proctor.runner.prepare import PrepareSetup, prepare
from proctor.sources.base import BLOCK_FIELDS, ReadGroup, Source

_MB = 1_000_000
_TASK_RETRIES = 2
"""How often Ray runs a task again whose worker or actor died. Its default is for ever, and a row that kills its reader
would keep the run from ever ending; what is lost after these, the next sweep has in smaller groups."""


class RowsDatasource(Datasource):
    """Feeds planned read groups to Ray, one read task each, so that a block is exactly a group.

    Args:
        alone: given when each group is one row, which is then traced and answers for all that goes wrong.
    """

    def __init__(self, source: Source, groups: Sequence[ReadGroup], alone: HubClient | None) -> None:
        super().__init__()
        self._source, self._groups, self._alone = ray.put(source), groups, alone

    @override
    def get_name(self) -> str:
        """Name in Ray's own displays."""
        return "Rows"

    @override
    def estimate_inmemory_data_size(self) -> int:
        """Bytes of all groups together."""
        return sum(int(group.size_bytes) for group in self._groups)

    @override
    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: DataContext | None = None
    ) -> list[ReadTask]:
        """One task a group. Ray calls this several times: it is pure and cheap."""
        return [_read_task(self._source, group, self._alone) for group in self._groups]


def _read_task(source: ray.ObjectRef, group: ReadGroup, alone: HubClient | None) -> ReadTask:
    """Reads `group`. Its closure carries a reference: a source holds an index, and there are thousands of tasks."""
    metadata = BlockMetadata(
        num_rows=len(group.row_ids), size_bytes=int(group.size_bytes), input_files=None, exec_stats=None
    )

    def read() -> Iterable[pa.Table]:
        opened: Source = ray.get(source)
        return timely(opened.read(group)) if alone is None else _read_alone(opened, group, alone)

    return ReadTask(read, metadata)


def _read_alone(source: Source, group: ReadGroup, hub: HubClient) -> list[pa.Table]:
    """Reads a group of one row; whatever goes wrong is told in its block."""
    (row_id,) = group.row_ids
    with hub.inside(row_id, "read"):
        try:
            return list(timely(source.read(group)))
        except Exception as error:
            row = {"row_id": row_id, "error_kind": ErrorKind.READ_FAILED.value, "error_message": told(error)}
            return [pa.Table.from_pylist([row], schema=pa.schema([*BLOCK_FIELDS, *source.columns()]))]


def stream(exam: Exam, sweep: Sweep, todo: BitMap64, hub: HubClient) -> Generator[dict[str, Any], None, None]:
    """Runs `todo` through the engines once and yields a tally (see `blocks.TALLY`) for each block that was written.

    Closing the iterator ends the execution. Rows that do not come back are simply still unanswered.
    """
    spec = exam.spec
    groups = _copies(exam, sweep, exam.source.groups(todo, sweep.block_rows, int(spec.stream.block_mb * _MB)))
    _configure(exam)
    with warnings.catch_warnings():
        # Until 2.64 this is the only way to bound the retries of a task (see `_TASK_RETRIES`).
        warnings.filterwarnings("ignore", "`ray_remote_args` is deprecated", ray.util.annotations.RayDeprecationWarning)
        tallies = _pipeline(exam, sweep, groups, hub)
    # Not `iter_batches`: its thread outlives it, and Ray ends a process that still asks while Ray itself is ending.
    for bundle in tallies.iter_internal_ref_bundles():
        for block in ray.get(bundle.block_refs):
            yield from block.to_pylist()


def _pipeline(exam: Exam, sweep: Sweep, groups: Sequence[ReadGroup], hub: HubClient) -> ray.data.Dataset:
    """The stages; nothing runs before the data set is iterated."""
    spec = exam.spec
    task_options = {"num_cpus": _prepare_cpus(exam), "max_retries": _TASK_RETRIES}
    alone = hub if sweep.alone and not sweep.spread else None  # a trail is of one worker at a time
    row_seconds = spec.limits.row_seconds
    rows = ray.data.read_datasource(
        RowsDatasource(exam.source, groups, alone), override_num_blocks=len(groups), ray_remote_args=task_options
    )
    return (
        rows.map_batches(
            prepare,
            batch_size=None,
            batch_format="pyarrow",
            fn_kwargs={"setup": PrepareSetup(exam.task, spec.source.columns, row_seconds, alone, exam.images)},
            **task_options,
        )
        .map_batches(
            Infer,
            batch_size=None,
            batch_format="pyarrow",
            fn_constructor_args=(exam.engine_setup(sweep.checkpoint), hub),
            compute=_engines(exam, sweep, len(groups)),
            num_cpus=spec.engine.cpus_per_replica,
            num_gpus=spec.engine.gpus_per_replica or None,
            max_task_retries=_TASK_RETRIES,
        )
        .map_batches(
            finish,
            batch_size=None,
            batch_format="pyarrow",
            fn_kwargs={"desk": Desk(exam.run.folder, sweep.checkpoint, sweep.number, exam.task, row_seconds, alone)},
            **task_options,
        )
    )


def _copies(exam: Exam, sweep: Sweep, groups: Sequence[ReadGroup]) -> list[ReadGroup]:
    """The last few groups of a run with an engine out of order: one for every engine, since one of them may be handed
    all that there is. Whoever answers, the record is the same, and its part has the same name.
    """
    few = len(groups) <= sweep.engines * exam.spec.stream.blocks_in_flight
    return [*groups] * (sweep.engines if sweep.spread and few else 1)


def _engines(exam: Exam, sweep: Sweep, blocks: int) -> ActorPoolStrategy:
    engines = sweep.engines if sweep.spread else min(sweep.engines, blocks)
    in_flight = 1 if sweep.spread else exam.spec.stream.blocks_in_flight
    return ActorPoolStrategy(
        size=engines,
        max_tasks_in_flight_per_actor=in_flight,
        max_concurrent_calls_per_actor=in_flight,
        enable_true_multi_threading=True,
    )


def _prepare_cpus(exam: Exam) -> float:
    """Never the engines' own number: Ray would fuse preparation into the actor, where it dies with the engine."""
    cpus = exam.spec.stream.prepare_cpus
    return cpus * 0.99 if math.isclose(cpus, exam.spec.engine.cpus_per_replica) else cpus


def _configure(exam: Exam) -> None:
    """Settings of Ray Data for this sweep: a lost block never ends it, silence does, and blocks stay as planned."""
    limits = exam.spec.limits
    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.max_errored_blocks = -1
    context.execution_no_progress_timeout_s = math.ceil(
        limits.load_seconds * limits.init_attempts + 4 * limits.stall_seconds + 120
    )
    context.target_max_block_size = max(128 << 20, 4 * int(exam.spec.stream.block_mb * _MB))
