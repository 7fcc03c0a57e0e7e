"""What each way of spending GPUs takes. Pure arithmetic; nothing that is not known is made up.

A unit of k cells, with engines for `a` checkpoints at once and r replicas of each, over n rows::

    seconds     = beside + starts x start + swaps x (swap + behind) + n x k / (r x a x rate)
    CPU seconds = n x (ceil(k / a) x prepare + k x write)

where `beside` is what a run takes before and after its work, `starts` and `swaps` how often its engines start, and take
over another checkpoint, one after another (`proctor.capacity.sequence.course`), `behind` what a start takes longer than
the work for the checkpoint before, where a second engine starts beside, `rate` the rows a second of one engine,
`prepare` the CPU seconds to read and prepare a row, and `write` those to mark and write a record, with what Ray does
for it. Units start in their order, as GPUs (and `max_concurrent`) allow. The fleet takes as long as that, or as the
CPUs take for all their seconds, whichever is longer.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from proctor.capacity.sequence import Course, course
from proctor.fleet.cells import Unit

Way = Literal["jobs", "parallel", "sequential"]
WAYS: tuple[Way, ...] = ("jobs", "parallel", "sequential")


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with where it is from; None if it is not known, and then why."""

    value: float | None
    origin: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What the arithmetic starts from.

    Attributes:
        rate: rows a second of one engine.
        start: seconds that an engine takes to start.
        swap: seconds that an engine takes to take over another checkpoint and to prove it.
        beside: seconds that a run takes beside its work.
        prepare: CPU seconds to read and prepare a row.
        write: CPU seconds to mark and write a record, and for Ray's part in it.
        gpus: that the fleet may use.
        cores: CPUs of the cluster.
    """

    rate: Figure
    start: Figure
    swap: Figure
    beside: Figure
    prepare: Figure
    write: Figure
    gpus: Figure
    cores: Figure


@dataclass(frozen=True, slots=True)
class Prediction:
    """One way.

    Attributes:
        way: which.
        units: jobs that are left to run.
        cells: cells that are left in them.
        gpus: that a job takes, at most.
        at_once: jobs at the same time; None if that is not known.
        rounds: times that so many start, if all take equally long; None if that is not known.
        starts, swaps: starts of engines, and swaps of checkpoints, that jobs wait for, over all of them.
        cpu_hours: CPU hours to read, prepare, mark and write; None if not known.
        hours: until the last one has ended; None if not known.
        gpu_hours: that GPUs are held; None if not known.
        limit: what makes it take so long: ``GPUs``, ``CPUs``, ``max_concurrent``, or ``the longest job``; empty if not
            known.
        impossible: why this way cannot be taken; empty if it can.
        formula: the arithmetic, in one line.
    """

    way: Way
    units: int = 0
    cells: int = 0
    gpus: float = 0.0
    at_once: int | None = None
    rounds: int | None = None
    starts: int = 0
    swaps: int = 0
    cpu_hours: float | None = None
    hours: float | None = None
    gpu_hours: float | None = None
    limit: str = ""
    impossible: str = ""
    formula: str = ""


@dataclass(frozen=True, slots=True)
class _Load:
    """What is left of a unit."""

    unit: Unit
    cells: int
    rows: int | None

    @property
    def at_once(self) -> int:
        """Checkpoints whose engines work side by side."""
        return min(self.unit.spec.stream.checkpoints_at_once, self.cells)

    @property
    def course(self) -> Course:
        """How the engines come to the cells that are left."""
        return course(self.unit.spec, self.cells)

    @property
    def engines(self) -> int:
        """That work at the same time."""
        return self.unit.spec.engine.replicas * self.at_once

    def seconds(self, facts: Facts, rate: float) -> float:
        work = (self.rows or 0) / (self.engines * rate)
        waited = self.course.seconds(facts.start.value or 0.0, facts.swap.value or 0.0, work)
        return (facts.beside.value or 0.0) + waited + work * self.cells

    def cpu_seconds(self, prepare: float, write: float) -> float:
        return (self.rows or 0) * (math.ceil(self.cells / self.at_once) * prepare + self.cells * write)


def predict(
    way: Way,
    units: Sequence[Unit],
    rows: Mapping[str, int | None],
    facts: Facts,
    *,
    max_concurrent: int | None = None,
    done: Collection[str] = (),
) -> Prediction:
    """What `way` takes.

    Args:
        way: which.
        units: that it makes of the fleet.
        rows: rows of the source of each cell, by the cell's name; None where that is not known.
        facts: the numbers that are known.
        max_concurrent: jobs at the same time at most.
        done: names of cells that are complete already.
    """
    loads = list(_loads(units, rows, done))
    if not loads:
        return Prediction(way, formula="every cell is complete")
    gpus = max(load.unit.gpus for load in loads)
    free = facts.gpus.value
    if free is not None and gpus > free:
        return Prediction(way, len(loads), gpus=gpus, impossible=f"a job takes {gpus:g} GPUs, and there are {free:g}")
    at_once = _at_once(len(loads), gpus, free, max_concurrent)
    counted = Prediction(
        way,
        units=len(loads),
        cells=sum(load.cells for load in loads),
        gpus=gpus,
        at_once=at_once,
        rounds=None if at_once is None else math.ceil(len(loads) / at_once),
        starts=sum(load.course.starts for load in loads),
        swaps=sum(load.course.swaps for load in loads),
        cpu_hours=_cpu_hours(loads, facts),
    )
    return _timed(counted, loads, facts, max_concurrent)


def _loads(units: Sequence[Unit], rows: Mapping[str, int | None], done: Collection[str]) -> Iterator[_Load]:
    for unit in units:
        left = [cell for cell in unit.cells if cell.name not in done]
        if left:
            yield _Load(unit, len(left), rows.get(left[0].name))


def _at_once(units: int, gpus: float, free: float | None, most: int | None) -> int | None:
    fitting = units if gpus == 0 else None if free is None else max(1, math.floor(free / gpus + 1e-9))
    if fitting is None:
        return None
    return min(units, fitting, most or units)


def _cpu_hours(loads: Sequence[_Load], facts: Facts) -> float | None:
    prepare, write = facts.prepare.value, facts.write.value
    if prepare is None or write is None or any(load.rows is None for load in loads):
        return None
    return sum(load.cpu_seconds(prepare, write) for load in loads) / 3600


def _timed(counted: Prediction, loads: Sequence[_Load], facts: Facts, most: int | None) -> Prediction:
    rate, at_once = facts.rate.value, counted.at_once
    formula = _formula(counted, loads, facts)
    unknown = [
        what
        for what, is_known in (
            ("the rate of an engine", rate is not None),
            ("the number of GPUs", at_once is not None),
            ("the number of rows", all(load.rows is not None for load in loads)),
        )
        if not is_known
    ]
    if unknown or rate is None or at_once is None:
        return replace(counted, formula=f"{formula}; unknown: {', '.join(unknown)}")
    seconds = [load.seconds(facts, rate) for load in loads]
    by_jobs = _schedule(seconds, at_once) / 3600
    cpu_hours, cores = counted.cpu_hours, facts.cores.value
    by_cpus = 0.0 if cpu_hours is None or not cores else cpu_hours / cores
    hours = max(by_jobs, by_cpus)
    held = sum(length * load.unit.gpus for length, load in zip(seconds, loads, strict=True)) / 3600
    if by_cpus > by_jobs:
        limit = "CPUs"
    elif at_once == len(loads):
        limit = "the longest job"
    else:
        limit = "max_concurrent" if at_once == most else "GPUs"
    stretched = hours / by_jobs if by_jobs else 1.0
    told = f"{formula}; CPUs: {cpu_hours:.3g} h / {cores:g} = {by_cpus:.3g} h" if by_cpus else formula
    return replace(counted, hours=hours, gpu_hours=held * stretched, limit=limit, formula=told)


def _schedule(seconds: Sequence[float], at_once: int) -> float:
    """Seconds until the last unit has ended, if each starts as soon as one of `at_once` places is free."""
    places = [0.0] * at_once
    for length in seconds:
        heapq.heapreplace(places, places[0] + length)
    return max(places)


def _formula(counted: Prediction, loads: Sequence[_Load], facts: Facts) -> str:
    """The arithmetic of the largest unit, and how many there are of them."""
    load, rate = max(loads, key=lambda each: each.cells), facts.rate.value
    rows = "rows" if load.rows is None else f"{load.rows:,}"
    work = f"{rows} x {load.cells} / ({load.engines} x {'rate' if rate is None else f'{rate:.4g}/s'})"
    terms = [f"{facts.beside.value:.3g} s"] if facts.beside.value else []
    told, unknown = _waits(load, facts)
    aside = f", and {' and '.join(unknown)} that nobody has measured" if unknown else ""
    waves = "jobs / at once" if counted.rounds is None else f"{counted.units} jobs / {counted.at_once} at once"
    terms += told
    body = " + ".join([*terms, work])
    return f"{waves} x ({body}{aside})" if terms or aside else f"{waves} x {body}"


def _waits(load: _Load, facts: Facts) -> tuple[list[str], list[str]]:
    """What a unit waits for its engines: terms with their seconds, and those whose seconds are not known."""
    path, start, rate = load.course, facts.start.value, facts.rate.value
    kinds = (("start", path.starts, start), ("swap", path.swaps, facts.swap.value))
    told = [f"{count} x {each:.3g} s" for _, count, each in kinds if count and each]
    unknown = [f"{count} x {kind}" for kind, count, each in kinds if count and each is None]
    if path.beside and path.swaps and start and rate is not None:
        behind = start - (load.rows or 0) / (load.engines * rate)
        told += [f"{path.swaps} x {behind:.3g} s behind a second engine"] if behind > 0 else []
    return told, unknown
