"""What a plan foretold beside what came of it."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest

from proctor.results import RunDir
from proctor.rows import Event
from proctor.view.browse.states import Counts, Last
from proctor.view.formats import NOTHING
from proctor.view.planned import PlanFile, foretold, plan_of

PLAN = {
    "verdict": "fits",
    "checks": [],
    "rows": 1_000,
    "throughput": {
        "rows_per_second": 12.5,
        "hours": 0.05,
        "limit": "read",
        "bound_only": True,
        "formula": "2 tasks",
        "start_seconds": 30.0,
    },
    "capacity": {"engines_per_node": 2, "engine_memory_mb": 800},
    "nodes": [{"node": "n1", "count": 3, "engines": 2, "run_memory": 2e9, "ram": 16e9, "reads": 1}],
}
EVENTS = [
    Event("sweep.started", 50.0),  # of an earlier start of the run
    Event("sweep.ended", 90.0),
    Event("sweep.started", 110.0),
    Event("engine.started", 111.0, engine="a"),
    Event("engine.started", 111.0, engine="b"),
    Event("engine.loaded", 131.0, engine="a", duration=20.0),
    Event("engine.loaded", 141.0, engine="b", duration=30.0),
    Event("sweep.ended", 190.0),
    Event("engine.closed", 191.0, engine="a", data={"peak_bytes": 500_000_000}),
    Event("engine.closed", 191.0, engine="b", data={"peak_bytes": 0}),
]
LAST = Last("complete", time=200.0, seconds=100.0, checkpoints={"c": Counts(total=1_000, before=200, done=1_000)})


def _lines(plan: object, last: Last | None, events: list[Event]) -> dict[str, tuple[str, str]]:
    found = foretold(msgspec.convert(plan, PlanFile), last, events)
    assert all(line.planned and line.actual for line in found)
    return {line.what: (line.planned, line.actual) for line in found}


def test_numbers_of_the_plan_stand_beside_those_of_the_run_since_it_was_last_started() -> None:
    assert _lines(PLAN, LAST, EVENTS) == {
        "Rows": ("1,000", "800"),
        "Rows/s": ("at most 12.5", "10"),
        "Time": ("at least 3:00 min", "1:40 min"),
        "Start of an engine": ("30.0 s", "25.0 s"),
        "Engines": ("6", "2"),
        "Memory of an engine": ("0.8 GB", "0.5 GB"),
        "Memory of 3 nodes such as n1": ("2 of 16 GB", NOTHING),
    }
    (limit,) = [line.note for line in foretold(msgspec.convert(PLAN, PlanFile), LAST, EVENTS) if line.what == "Rows/s"]
    assert limit.startswith("read limits it: 2 tasks")


def test_what_is_not_known_is_a_dash() -> None:
    lines = _lines({"verdict": "unknown", "throughput": {"rows_per_second": None, "limit": None}}, None, [])
    assert lines == {
        "Rows": ("0", "0"),
        "Rows/s": (NOTHING, NOTHING),
        "Time": (NOTHING, NOTHING),
        "Start of an engine": (NOTHING, NOTHING),
        "Engines": ("0", "0"),
        "Memory of an engine": (NOTHING, NOTHING),
    }


def test_numbers_that_are_none_break_nothing() -> None:
    for odd in (math.nan, math.inf, -1.0, 1e300):
        throughput = {"rows_per_second": odd, "hours": odd, "start_seconds": odd}
        plan = {**PLAN, "throughput": throughput, "nodes": [{"run_memory": odd, "ram": odd}] * 1_000}
        events = [Event("engine.loaded", odd, duration=odd), Event("sweep.started", odd), Event("sweep.ended", 0.0)]
        assert len(_lines(plan, Last(time=odd, seconds=odd), events)) <= 30


def test_a_run_without_a_plan_has_none(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert plan_of(run) is None
    run.write("plan", PLAN)
    assert plan_of(run) == msgspec.convert(PLAN, PlanFile)
    run.write("plan", {"verdict": 7})
    with pytest.raises(ValueError, match="verdict"):
        plan_of(run)
