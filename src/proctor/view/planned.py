"""What a run's plan foretold, beside what came of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from proctor.results import RunDir
from proctor.rows import Event
from proctor.view.browse.states import Last
from proctor.view.charts.timeline import sweep_seconds
from proctor.view.formats import NOTHING, duration, whole

_MOST_NODES = 20
_SLACK = 2.0  # seconds by which the first event of a run may lie before what its status calls its beginning


class Foretold(NamedTuple):
    """One number of the plan.

    Attributes:
        what: it is.
        planned, actual: with their units; a dash where there is none.
        note: how to read them.
    """

    what: str
    planned: str
    actual: str
    note: str = ""


class _Throughput(msgspec.Struct):
    rows_per_second: float | None = None
    hours: float | None = None
    limit: str | None = None
    bound_only: bool = False
    formula: str = ""
    start_seconds: float | None = None


class _Node(msgspec.Struct):
    node: str = ""
    count: int = 1
    engines: int = 0
    run_memory: float = 0.0
    ram: float = 0.0


class _Capacity(msgspec.Struct):
    engine_memory_mb: float | None = None


class PlanFile(msgspec.Struct):
    """What is read of ``plan.json`` (`proctor.capacity.planning.Plan`)."""

    verdict: str
    rows: int = 0
    throughput: _Throughput = msgspec.field(default_factory=_Throughput)
    capacity: _Capacity = msgspec.field(default_factory=_Capacity)
    nodes: list[_Node] = []


def plan_of(run: RunDir) -> PlanFile | None:
    """The plan of a run; None for one that was too small to plan.

    Raises:
        UserError, ValueError: ``plan.json`` is damaged.
    """
    found = run.read("plan")
    return None if found is None else msgspec.convert(found, PlanFile)


def foretold(plan: PlanFile, last: Last | None, events: Sequence[Event]) -> list[Foretold]:
    """The plan's numbers beside those of the run since it was last started, which is what the plan was made for."""
    since = -math.inf if last is None else last.time - last.seconds - _SLACK
    return list(_lines(plan, last or Last(), [event for event in events if event.time >= since]))


def _lines(plan: PlanFile, last: Last, events: list[Event]) -> Iterator[Foretold]:
    expects = plan.throughput
    yield Foretold("Rows", whole(plan.rows), whole(last.worked), "left to do when it was planned; done since then")
    worked = sweep_seconds(events)
    rate = f"{last.worked / worked:.3g}" if worked > 0 and last.worked > 0 else NOTHING
    most = "at most " if expects.bound_only else ""
    limit = f"{expects.limit} limits it: {expects.formula}" if expects.limit else expects.formula
    planned = NOTHING if expects.rows_per_second is None else f"{most}{expects.rows_per_second:.3g}"
    yield Foretold("Rows/s", planned, rate, f"{limit}; during the sweeps that have ended" if limit else "")
    hours = None if expects.hours is None or not _sane(expects.hours) else expects.hours * 3600
    least = "at least " if expects.bound_only else ""
    took = duration(last.seconds) if _sane(last.seconds) and last.seconds > 0 else NOTHING
    note = "all rows, with the starts of the engines; since the driver began, with the start of Ray"
    yield Foretold("Time", NOTHING if hours is None else f"{least}{duration(hours)}", took, note)
    yield _starts(expects.start_seconds, [event for event in events if event.kind == "engine.loaded"])
    engines = sum(node.engines * node.count for node in plan.nodes)
    names = {event.engine for event in events if event.kind == "engine.started"}
    yield Foretold("Engines", whole(engines), whole(len(names)), "at once; that were started, later ones included")
    yield _engine_memory(plan.capacity.engine_memory_mb, [e for e in events if e.kind == "engine.closed"])
    for node in plan.nodes[:_MOST_NODES]:
        yield _memory(node)


def _starts(planned: float | None, loaded: list[Event]) -> Foretold:
    took = [event.duration for event in loaded if event.duration is not None and _sane(event.duration)]
    actual = duration(sum(took) / len(took)) if took else NOTHING
    known = planned is not None and _sane(planned)
    note = f"the mean of {whole(len(took))}" if len(took) > 1 else ""
    return Foretold("Start of an engine", duration(planned) if known and planned is not None else NOTHING, actual, note)


def _engine_memory(planned: float | None, closed: list[Event]) -> Foretold:
    peaks = [peak for event in closed if isinstance(peak := event.data.get("peak_bytes"), int) and peak > 0]
    actual = f"{max(peaks) / 1e9:.3g} GB" if peaks else NOTHING
    note = "with its worker and the rows in it; its own processes at their highest, of those that closed in good order"
    return Foretold("Memory of an engine", NOTHING if planned is None else f"{planned / 1e3:.3g} GB", actual, note)


def _memory(node: _Node) -> Foretold:
    times = f"{whole(node.count)} nodes such as {node.node}" if node.count > 1 else node.node
    planned = f"{node.run_memory / 1e9:.3g} of {node.ram / 1e9:.3g} GB"
    return Foretold(f"Memory of {times}", planned, NOTHING, "a run does not record what its nodes took")


def _sane(seconds: float) -> bool:
    return 0 <= seconds < 1e10  # false for NaN
