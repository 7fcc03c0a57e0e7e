"""The plan of a fleet: its cells, what each way of running them takes, and what speaks for the one that was chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple

from proctor.capacity import Cluster
from proctor.capacity import plan as plan_run
from proctor.capacity.cluster import this_machine
from proctor.capacity.sequence import start_seconds, swap_seconds
from proctor.fleet.cells import Unit, expand
from proctor.fleet.finding import find_settled
from proctor.fleet.folder import Fleet, FleetDir, base_of
from proctor.fleet.measured import Measured, measure
from proctor.fleet.resubmit import preview
from proctor.fleet.standing import DONE, Standing, standings
from proctor.fleet.ways import WAYS, Facts, Figure, Prediction, predict
from proctor.rows import UserError
from proctor.sources.registry import source_of
from proctor.spec import RunSpec, warnings_of
from proctor.spec.fleet import FleetSpec

_SAMPLE_SECONDS = 5.0
_NOTHING = "not known"


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """What `plan_fleet` found.

    Attributes:
        units: of the fleet, with those that a submission would add.
        added: names of the units that are not recorded yet.
        waiting: checkpoints that do not count yet, by path, and why.
        standings: how every cell stands.
        rows: rows of each cell's source by name; None where it could not be opened.
        ways: the three ways, the chosen one among them.
        facts: the numbers behind them.
        chosen: the way of the spec.
        reasons: what speaks for and against it, one line each.
        warnings: settings without effect.
    """

    units: list[Unit]
    added: list[str]
    waiting: dict[str, str]
    standings: list[Standing]
    rows: dict[str, int | None]
    ways: list[Prediction]
    facts: Facts
    chosen: str
    reasons: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def plan_fleet(
    spec: FleetSpec,
    place: FleetDir,
    cluster: Cluster | None = None,
    engine_rate: float | None = None,
    start: float | None = None,
    swap: float | None = None,
) -> FleetPlan:
    """Plans a fleet: opens its sources, samples one of them, reads finished runs. Writes and starts nothing.

    Args:
        spec: resolved.
        place: its directory.
        cluster: its nodes, if somebody has described them.
        engine_rate: rows a second of one engine, if somebody has measured it.
        start: seconds of an engine's start, likewise.
        swap: seconds in which an engine takes over another checkpoint and proves it, likewise.

    Raises:
        UserError: the fleet cannot be submitted as it is.
    """
    found = find_settled(spec)
    entered = preview(place, spec, found.checkpoints)
    units = entered.units
    if not units:
        raise UserError("no checkpoint counts yet, so there is nothing to plan", where="matrix.checkpoints")
    stand = standings(place, units, None if not entered.created else [])
    rows, trouble = _rows(units)
    facts = _facts(spec, place, units, cluster, _Given(engine_rate, start, swap))
    done = {row.cell.name for row in stand if row.state in DONE}
    ways = [_predicted(entered.fleet, way, rows, facts, done) for way in WAYS]
    told, warnings = [*trouble, *reasons(spec.way, ways)], warnings_of_fleet(spec, units)
    return FleetPlan(units, entered.added, found.waiting, stand, rows, ways, facts, spec.way, told, warnings)


def warnings_of_fleet(spec: FleetSpec, units: Sequence[Unit]) -> list[str]:
    """One line for each setting of a fleet, or of its runs, that has no effect: ``key: why``."""
    found = [
        f"{key}: has no effect without way: {way}"
        for key, way in (("at_once", "parallel"), ("lanes", "sequential"))
        if spec.way != way and getattr(spec, key) != FleetSpec.model_fields[key].default
    ]
    names = [cell.name for unit in units for cell in unit.cells]
    found += [
        f"priority.{place}.match: {rule.match!r} fits no cell"
        for place, rule in enumerate(spec.priority)
        if not any(fnmatchcase(name, rule.match) for name in names)
    ]
    return [*found, *dict.fromkeys(f"run.{text}" for unit in units for text in warnings_of(unit.spec))]


def _predicted(fleet: Fleet, way: str, rows: dict[str, int | None], facts: Facts, done: set[str]) -> Prediction:
    spec = fleet.spec.model_copy(update={"way": way})
    try:
        units = expand(spec, base_of(spec), fleet.batches)
    except UserError as error:
        return Prediction(next(known for known in WAYS if known == way), impossible=error.what)
    known = next(each for each in WAYS if each == way)
    return predict(known, units, rows, facts, max_concurrent=spec.max_concurrent, done=done)


def _rows(units: Sequence[Unit]) -> tuple[dict[str, int | None], list[str]]:
    """Rows of each cell, and why some are not known; a source that several cells share is opened once."""
    counts: dict[str, int | None] = {}
    trouble: list[str] = []
    found: dict[str, int | None] = {}
    for unit in units:
        key = unit.spec.source.model_dump_json()
        if key not in counts:
            try:
                counts[key] = len(source_of(unit.spec).expected())
            except (UserError, OSError) as error:
                counts[key] = None
                trouble.append(f"rows of {unit.spec.source.path} are not known here: {error}")
        found |= {cell.name: counts[key] for cell in unit.cells}
    return found, trouble


class _Given(NamedTuple):
    """What somebody has measured; None where nobody has."""

    rate: float | None
    start: float | None
    swap: float | None


def _facts(spec: FleetSpec, place: FleetDir, units: Sequence[Unit], cluster: Cluster | None, given: _Given) -> Facts:
    sample, seen = units[0].spec, measure(place, units)
    rate = _rate(given, seen)
    prepare, write, estimated = _stages(sample, cluster, rate.value)
    return Facts(
        rate=rate if rate.value is not None else estimated,
        start=_seconds(given.start, seen.start, start_seconds(sample, None), "start of an engine"),
        swap=_seconds(given.swap, seen.swap, swap_seconds(sample, None), "swap"),
        beside=Figure(seen.beside, f"measured: median of {seen.runs} runs")
        if seen.beside is not None
        else Figure(None, f"{_NOTHING}: no cell has finished yet"),
        prepare=prepare,
        write=write,
        gpus=_gpus(spec, cluster),
        cores=Figure(None, f"{_NOTHING}: describe the nodes with --cluster")
        if cluster is None
        else Figure(sum(node.real_cpus * node.count for node in cluster.nodes), cluster.origin),
    )


def _rate(given: _Given, seen: Measured) -> Figure:
    if given.rate is None and seen.rate is not None:
        return Figure(seen.rate, f"measured: {seen.rows:,} rows in {seen.runs} finished runs of this fleet")
    return Figure(given.rate, "given")


def _seconds(given: float | None, seen: float | None, of_kind: float | None, what: str) -> Figure:
    """Seconds as somebody gives them, as this fleet has measured them, or as they are for the kind of engine."""
    if given is not None:
        return Figure(given, "given")
    if seen is not None:
        return Figure(seen, f"measured: median {what} in this fleet")
    return Figure(of_kind, f"{_NOTHING}: no {what} in this fleet yet" if of_kind is None else "of this kind of engine")


def _gpus(spec: FleetSpec, cluster: Cluster | None) -> Figure:
    if spec.cluster.gpus is not None:
        return Figure(spec.cluster.gpus, "cluster.gpus")
    if cluster is not None:
        return Figure(cluster.total("gpus"), cluster.origin)
    return Figure(None, f"{_NOTHING}: set cluster.gpus, or describe the nodes with --cluster")


def _stages(spec: RunSpec, cluster: Cluster | None, rate: float | None) -> tuple[Figure, Figure, Figure]:
    """CPU seconds of a row before and after its engine, and the rate of an engine, as far as the planner of runs knows
    them."""
    if cluster is None:  # this machine need not have the GPUs of those of the fleet
        spec = spec.model_copy(update={"engine": spec.engine.model_copy(update={"gpus_per_replica": 0.0})})
    nodes = this_machine() if cluster is None else cluster
    try:
        found = plan_run(spec, nodes, engine_rate=rate, sample_seconds=_SAMPLE_SECONDS)
    except (UserError, OSError) as error:
        reason = f"{_NOTHING}: {error}"
        return Figure(None, reason), Figure(None, reason), Figure(None, reason)
    stages = {stage.stage: stage for stage in found.throughput.stages}
    engines = sum(node.engines * node.count for node in found.nodes)
    infer = stages["infer"]
    known = infer.rows_per_second is not None and engines
    return (
        Figure(stages["read"].cpu_seconds + stages["prepare"].cpu_seconds, "sampled on this machine"),
        Figure(stages["write"].cpu_seconds + stages["overhead"].cpu_seconds, "sampled on this machine, and Ray's part"),
        Figure((infer.rows_per_second or 0.0) / engines, infer.formula)
        if known
        else Figure(None, f"{_NOTHING}: no cell has finished yet; give --engine-rows-per-second"),
    )


def reasons(chosen: str, ways: Sequence[Prediction]) -> list[str]:
    """What speaks for and against the chosen way. Only what follows from the numbers."""
    mine = next(way for way in ways if way.way == chosen)
    if mine.impossible:
        possible = [way.way for way in ways if not way.impossible]
        return [
            f"way: {chosen} cannot be taken: {mine.impossible}",
            *([f"possible: {', '.join(possible)}"] if possible else []),
        ]
    if not mine.units:
        return ["nothing is left to do"]
    if mine.hours is None:
        return [f"{chosen}: its hours are not known ({mine.formula.rpartition('unknown: ')[2]})", *_known(mine, ways)]
    timed = [way for way in ways if way.hours is not None and not way.impossible]
    best = min(timed, key=lambda way: (way.hours or 0.0, way.gpu_hours or 0.0, way is not mine))
    told = [f"{chosen}: {mine.hours:.3g} h, {_limited(mine)}"]
    if best is not mine and (best.hours or 0.0) < 0.99 * mine.hours:
        told.append(f"{best.way} would take {best.hours:.3g} h, {_limited(best)}")
    else:
        told.append("no other way is predicted to be faster")
    if not mine.gpus and mine.at_once == mine.units > 1:
        told.append(f"jobs take no GPUs, so that all {mine.units:,} of them start at once: set max_concurrent")
    return told + _known(mine, ways)


def _limited(way: Prediction) -> str:
    return f"limited by {way.limit}" if way.limit else "limited by nothing that is known"


def _known(mine: Prediction, ways: Sequence[Prediction]) -> list[str]:
    """How the chosen way differs from the others in what can be counted."""
    told = []
    for other in (way for way in ways if way.way != mine.way and not way.impossible and way.units):
        parts = []
        if (other.starts, other.swaps) != (mine.starts, mine.swaps):
            parts.append(f"{_waits(other)} to wait for instead of {_waits(mine)}")
        if mine.cpu_hours and other.cpu_hours and abs(other.cpu_hours / mine.cpu_hours - 1) > 0.01:
            parts.append(f"{other.cpu_hours:.3g} CPU hours instead of {mine.cpu_hours:.3g}")
        if mine.gpu_hours and other.gpu_hours and abs(other.gpu_hours / mine.gpu_hours - 1) > 0.01:
            parts.append(f"{other.gpu_hours:.3g} GPU hours instead of {mine.gpu_hours:.3g}")
        if parts:
            told.append(f"{other.way}: {', '.join(parts)}")
    return told


def _waits(way: Prediction) -> str:
    starts = f"{way.starts:,} start{'s' if way.starts != 1 else ''} of engines"
    return f"{starts} and {way.swaps:,} swap{'s' if way.swaps != 1 else ''}" if way.swaps else starts
