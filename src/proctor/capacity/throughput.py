"""How fast a run can be, and which stage keeps it from being faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from proctor.capacity.arithmetic import run_hours
from proctor.capacity.engines import on_gpu
from proctor.capacity.evaluate import Facts
from proctor.capacity.overhead import BLOCK_CPU_SECONDS, ROW_CPU_SECONDS
from proctor.capacity.placement import Share
from proctor.capacity.sequence import Course, course, start_seconds, swap_seconds
from proctor.spec import RunSpec, ScriptedEngineSpec

Stage = Literal["read", "prepare", "infer", "write", "overhead"]
"""``overhead`` is what Ray and Proctor do for every block and row, whatever is in it."""


@dataclass(frozen=True, slots=True)
class StageRate:
    """A stage by itself. Rates are None where they are not known, or without a limit.

    Attributes:
        stage: which.
        rows_per_second: the most it could do if the others took nothing.
        cpu_seconds: CPU time for a row.
        formula: how the rate was found.
    """

    stage: Stage
    rows_per_second: float | None
    cpu_seconds: float
    formula: str


@dataclass(frozen=True, slots=True)
class Throughput:
    """What to expect.

    Attributes:
        stages: each by itself.
        limit: the stage that limits the run; None when nothing is known.
        rows_per_second: rows that the run does in a second: of all stages together on the CPUs they share.
        hours: for all rows and checkpoints, with the engines' starts and swaps as far as their seconds are known.
        bound_only: the engine's rate is not known, so that this is the most there can be.
        formula: how `rows_per_second` was found.
        course: how the engines come to their checkpoints.
        start_seconds: that each start takes; None if not known.
        swap_seconds: that each swap takes; None if not known.
    """

    stages: tuple[StageRate, ...]
    limit: Stage | None
    rows_per_second: float | None
    hours: float | None
    bound_only: bool
    formula: str
    course: Course
    start_seconds: float | None
    swap_seconds: float | None


def throughput(spec: RunSpec, facts: Facts, shares: Sequence[Share]) -> Throughput:
    """The bound of a run.

    Args:
        spec: the run.
        facts: of its rows, and what is known of its engines. Of the scripted engine all is known: its rate follows from
            `row_ms`, its start is `load_seconds`.
        shares: what each node does.
    """
    sample, rows, blocks = facts.sample, facts.rows, facts.blocks(spec)
    engines = sum(share.engines * share.count for share in shares)
    slots = min(blocks, sum(share.reads * share.count for share in shares))
    cores = sum(share.node.real_cpus * share.count for share in shares)
    busy = 0.0 if spec.engine.kind in ("scripted", "openai") or on_gpu(spec) else spec.engine.cpus_per_replica * engines
    spare = max(0.1 * cores, cores - busy)  # a model on CPUs keeps those it was given
    checkpoints = max(1, facts.open_checkpoints(spec))
    per_block = rows / max(1, blocks) / checkpoints
    overhead = ROW_CPU_SECONDS + BLOCK_CPU_SECONDS / max(1.0, per_block)
    infer = _infer(spec, engines, facts.engine_rate)
    known = infer.rows_per_second is not None or infer.formula.startswith("no limit")
    stages = (
        _task_stage("read", sample.per_row("read_seconds"), sample.per_row("read_cpu"), slots),
        _task_stage("prepare", sample.per_row("prepare_cpu"), sample.per_row("prepare_cpu"), slots),
        infer,
        _task_stage("write", sample.per_row("write_cpu"), sample.per_row("write_cpu"), max(1, engines)),
        StageRate(
            "overhead", spare / overhead, overhead, f"{spare:g} cores / (row {ROW_CPU_SECONDS * 1e3:g} ms + block "
            f"{BLOCK_CPU_SECONDS * 1e3:g} ms / {per_block:.0f} rows)"
        ),
    )  # fmt: skip
    path = course(spec, facts.checkpoints)
    start, swap = start_seconds(spec, facts.start_seconds), swap_seconds(spec, facts.swap_seconds)
    slowest = _slowest(stages, spare, slots)
    if slowest is None:
        return Throughput(stages, None, None, None, not known, "nothing is known", path, start, swap)
    rate, limit, formula = slowest
    work = run_hours(rows, rate)
    hours = work + path.seconds(start or 0.0, swap or 0.0, work * 3600 / checkpoints) / 3600
    return Throughput(stages, limit, rate, hours, not known, formula, path, start, swap)


def _slowest(stages: tuple[StageRate, ...], cores: float, slots: int) -> tuple[float, Stage, str] | None:
    """The rate of all stages together, the stage that limits it, and how that was found."""
    by_stage = {stage.stage: stage for stage in stages}
    infer = by_stage["infer"].rows_per_second
    cpu = sum(stage.cpu_seconds for stage in stages)
    work = {stage.stage: stage.cpu_seconds for stage in stages if stage.stage != "infer"}
    candidates: list[tuple[float, Stage, str]] = []
    if cpu > 0:
        most = max(work, key=lambda name: work[name])
        text = f"{cores:g} cores / {cpu * 1e3:.3g} ms CPU a row over all stages"
        candidates.append((cores / cpu, most, text))
    task = [by_stage["read"], by_stage["prepare"]]
    seconds = sum(1 / stage.rows_per_second for stage in task if stage.rows_per_second) * slots
    if slots and seconds:
        slower = min(task, key=lambda stage: stage.rows_per_second or float("inf")).stage
        candidates.append(
            (slots / seconds, slower, f"{slots} tasks / {seconds * 1e3:.3g} ms a row to read and prepare")
        )
    write = by_stage["write"].rows_per_second
    if write is not None:
        candidates.append((write, "write", by_stage["write"].formula))
    if infer is not None:
        candidates.append((infer, "infer", by_stage["infer"].formula))
    return min(candidates, default=None)


def _task_stage(stage: Stage, seconds: float, cpu: float, slots: int) -> StageRate:
    if seconds <= 0 or slots < 1:
        return StageRate(stage, None, cpu, "not measured" if seconds <= 0 else "no task has room")
    return StageRate(stage, slots / seconds, cpu, f"{slots} at once / {seconds * 1e3:.3g} ms a row, measured")


def _infer(spec: RunSpec, engines: int, rate: float | None) -> StageRate:
    if not engines:
        return StageRate("infer", None, 0.0, "no engine has room")
    if rate is not None:
        return StageRate("infer", rate * engines, 0.0, f"{engines} engines x {rate:g} rows/s, given")
    engine = spec.engine
    if not isinstance(engine, ScriptedEngineSpec):
        return StageRate("infer", None, 0.0, "unknown: measure it, and give --engine-rows-per-second")
    if not engine.row_ms:
        return StageRate("infer", None, 0.0, "no limit: row_ms is 0")
    return StageRate("infer", 1000 / engine.row_ms * engines, 0.0, f"{engines} engines x 1000 / {engine.row_ms:g} ms")
