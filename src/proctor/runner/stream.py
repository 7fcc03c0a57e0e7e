"""One sweep on Ray Data: read -> prepare -> infer -> score and write. The driver sees counts, never rows."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import ray
from pyroaring import BitMap64
from ray.data import ActorPoolStrategy, DataContext, TaskPoolStrategy

from proctor.rows import ErrorKind
from proctor.runner.course import Sweep
from proctor.runner.exam import Exam
from proctor.runner.finish import Desk, finish
from proctor.runner.hub import HubClient
from proctor.runner.infer import Infer
from proctor.runner.placement import engine_resources, placed
from proctor.runner.prepare import PrepareSetup, prepare
from proctor.runner.reading import RowsDatasource
from proctor.sources.base import ReadGroup

_MB = 1_000_000
_WHOLE: dict[str, Any] = {"batch_size": None, "batch_format": "pyarrow"}
TASK_RETRIES = 2
"""How often Ray runs a task again whose worker or actor died. Its default is for ever, and a row that kills its reader
would keep the run from ever ending; what is lost after these, the next sweep has in smaller groups."""


def stream(exam: Exam, sweep: Sweep, todo: BitMap64, hub: HubClient) -> Generator[dict[str, Any], None, None]:
    """Runs `todo` through the engines once and yields a tally (see `blocks.TALLY`) for each block that was written.

    Closing the iterator ends the execution. Rows that do not come back are simply still unanswered.
    """
    with placed(exam.spec, sweep.engines) as placement:
        tallies = _planned(lambda: pipeline(exam, sweep, _groups(exam, sweep, todo), hub, placement), exam)
        for block in _blocks(tallies):
            yield from ray.get(block).to_pylist()


def prepared_blocks(exam: Exam, sweep: Sweep, todo: BitMap64, hub: HubClient) -> Generator[ray.ObjectRef, None, None]:
    """References to the blocks of `todo`, read and prepared (see `blocks.PREPARED`).

    Closing the iterator ends the execution.
    """
    return _blocks(_planned(lambda: prepared(exam, sweep, _groups(exam, sweep, todo), hub), exam))


def _planned(make: Callable[[], ray.data.Dataset], exam: Exam) -> ray.data.Dataset:
    _configure(exam)
    with warnings.catch_warnings():
        # Until 2.64 this is the only way to bound the retries of a task (see `TASK_RETRIES`).
        warnings.filterwarnings("ignore", "`ray_remote_args", ray.util.annotations.RayDeprecationWarning)
        return make()


def _blocks(rows: ray.data.Dataset) -> Generator[ray.ObjectRef, None, None]:
    # Not `iter_batches`: its thread outlives it, and Ray ends a process that still asks while Ray itself is ending.
    for bundle in rows.iter_internal_ref_bundles():
        yield from bundle.block_refs


def _groups(exam: Exam, sweep: Sweep, todo: BitMap64) -> list[ReadGroup]:
    return _copies(exam, sweep, exam.source.groups(todo, sweep.block_rows, int(exam.spec.stream.block_mb * _MB)))


def prepared(exam: Exam, sweep: Sweep, groups: Sequence[ReadGroup], hub: HubClient) -> ray.data.Dataset:
    """The stages before the engine; nothing runs before the data set is iterated."""
    alone = _tracer(sweep, hub)
    setup = PrepareSetup(exam.task, exam.spec.source.columns, exam.spec.limits.row_seconds, alone, exam.images)
    rows = ray.data.read_datasource(
        RowsDatasource(exam.source, groups, alone), override_num_blocks=len(groups), **_tasks(exam, "read")
    )
    return rows.map_batches(prepare, **_WHOLE, fn_kwargs={"setup": setup}, **_tasks(exam, "prepare"))


def pipeline(
    exam: Exam, sweep: Sweep, groups: Sequence[ReadGroup], hub: HubClient, placement: Mapping[str, Any]
) -> ray.data.Dataset:
    """All stages. None of them waits for all that comes before it, so memory depends on the blocks in flight alone."""
    # Not `map_batches`: with GPUs it insists on a number of rows, to which it would gather blocks.
    answered = prepared(exam, sweep, groups, hub).map_batches_internal(
        Infer,
        **_WHOLE,
        fn_constructor_args=(exam.engine_setup(sweep.checkpoint), hub),
        compute=_engines(exam, sweep, len(groups)),
        max_task_retries=TASK_RETRIES,
        **ray_names(engine_resources(exam.spec)),
        **placement,
    )
    row_seconds = exam.spec.limits.row_seconds
    desk = Desk(exam.run.folder, sweep.checkpoint, sweep.number, exam.task, row_seconds, _tracer(sweep, hub))
    return answered.map_batches(finish, **_WHOLE, fn_kwargs={"desk": desk}, **_tasks(exam, "finish"))


def tally_of(tally: Mapping[str, Any], kind: ErrorKind) -> int:
    """Rows of a block that an error of this kind leaves open."""
    return int(json.loads(tally["retries"]).get(kind, 0))


def _tracer(sweep: Sweep, hub: HubClient) -> HubClient | None:
    """Who hears where each row is: a trail is of one worker at a time."""
    return hub if sweep.alone and not sweep.spread else None


def _tasks(exam: Exam, stage: str) -> dict[str, Any]:
    """Options for the tasks of a stage. Ray admits as many at once as its `memory` has room for, and no more."""
    remote: dict[str, Any] = {"num_cpus": _prepare_cpus(exam), "max_retries": TASK_RETRIES}
    capacity, memory, most = exam.spec.capacity, None, None
    if capacity is not None and stage == "read":
        memory, most = capacity.read_memory_mb, capacity.concurrent_reads
    elif capacity is not None and stage == "prepare":
        memory, most = capacity.prepare_memory_mb, capacity.prepare_workers
    if memory is not None:
        remote["memory"] = memory * _MB
    compute = None if most is None else TaskPoolStrategy(size=most)
    return {"compute": compute, **({"ray_remote_args": remote} if stage == "read" else remote)}


def ray_names(resources: Mapping[str, float]) -> dict[str, float]:
    """Resources under the names that Ray's options have for them."""
    return {{"CPU": "num_cpus", "GPU": "num_gpus"}.get(name, name): amount for name, amount in resources.items()}


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
