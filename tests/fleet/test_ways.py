"""Predicted hours by hand-checked cases, and what is said where a number is not known."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proctor.capacity import Cluster, Node
from proctor.fleet.cells import expand
from proctor.fleet.folder import FleetDir
from proctor.fleet.loading import load_fleet
from proctor.fleet.measured import measure
from proctor.fleet.planning import plan_fleet, reasons
from proctor.fleet.resubmit import enter
from proctor.fleet.ways import WAYS, Facts, Figure, Prediction, Way, predict
from proctor.rows import Event, UserError
from proctor.spec import Checkpoint
from proctor.spec.fleet import FleetSpec
from tests.fleet.making import RUN, write_fleet
from tests.fleet.staged_cells import YES, make_cells
from tests.fleet.test_standing import command

FACTS = Facts(
    rate=Figure(10.0, "given"),
    start=Figure(100.0, "given"),
    swap=Figure(5.0, "given"),
    beside=Figure(None, "?"),
    prepare=Figure(0.5, "given"),
    write=Figure(0.1, "given"),
    gpus=Figure(8.0, "given"),
    cores=Figure(None, "not known"),
)


def predicted(
    way: Way, facts: Facts = FACTS, *, checkpoints: int = 8, most: int | None = None, done: int = 0, **keys: Any
) -> Prediction:
    """8 checkpoints over 1,000 rows, engines of 2 GPUs."""
    run = {**RUN, "engine": {"kind": "scripted", "gpus_per_replica": 2.0, **keys.pop("engine", {})}}
    fleet = FleetSpec.model_validate({"fleet_dir": "/f", "run": run, "way": way, **keys})
    batch = [Checkpoint(name=f"c{n}", path=f"/c/{n}") for n in range(checkpoints)]
    units = expand(fleet, run, [batch])
    rows = {cell.name: 1000 for unit in units for cell in unit.cells}
    return predict(way, units, rows, facts, max_concurrent=most, done=[f"c{n}" for n in range(done)])


def test_hours_follow_from_rows_rate_starts_and_gpus() -> None:
    jobs = predicted("jobs")  # 4 at once, two rounds of 100 + 1000 / 10 s
    assert (jobs.units, jobs.at_once, jobs.rounds, jobs.starts, jobs.limit) == (8, 4, 2, 8, "GPUs")
    assert jobs.hours == pytest.approx(400 / 3600)
    assert jobs.gpu_hours == pytest.approx(8 * 200 * 2 / 3600)
    assert jobs.cpu_hours == pytest.approx(8 * 1000 * (0.5 + 0.1) / 3600)
    together = predicted("parallel", at_once=4)  # one job of 8 GPUs at a time; rows are prepared once for four
    assert (together.units, together.gpus, together.at_once, together.starts) == (2, 8.0, 1, 2)
    assert together.hours == pytest.approx(400 / 3600)
    assert together.cpu_hours == pytest.approx(2 * 1000 * (0.5 + 4 * 0.1) / 3600)
    one = predicted("sequential", engine={"reference": "beside"})  # one start, 8 x 100 s, and 7 swaps between them
    assert (one.units, one.starts, one.swaps, one.limit) == (1, 1, 7, "the longest job")
    assert one.hours == pytest.approx((100 + 7 * 5 + 800) / 3600)
    anew = predicted("sequential", lanes=4)  # no checkpoint is known yet: each is started once
    assert (anew.units, anew.starts, anew.swaps, anew.at_once) == (4, 8, 0, 4)
    assert anew.hours == pytest.approx((2 * 100 + 200) / 3600)


def test_swaps_wait_for_a_second_engine_that_starts_beside() -> None:
    slow = predicted("sequential", replace(FACTS, start=Figure(130.0, "given")), engine={"reference": "beside"})
    assert slow.hours == pytest.approx(
        (130 + 7 * (5 + 30) + 800) / 3600
    )  # it starts for 130 s, the first works for 100
    formula = "1 jobs / 1 at once x (1 x 130 s + 7 x 5 s + 7 x 30 s behind a second engine + 1,000 x 8 / (1 x 10/s))"
    assert slow.formula == formula
    left = predicted("sequential", engine={"reference": "beside"}, done=6)
    assert (left.starts, left.swaps, left.hours) == (1, 1, pytest.approx((100 + 5 + 200) / 3600))
    unmeasured = predicted("sequential", replace(FACTS, swap=Figure(None, "?")), engine={"reference": "beside"})
    assert unmeasured.hours == pytest.approx(900 / 3600)
    assert "and 7 x swap that nobody has measured" in unmeasured.formula
    told = reasons("jobs", [predicted(way, engine={"reference": "beside"}) for way in WAYS])
    assert any(
        text.startswith("sequential: 1 start of engines and 7 swaps to wait for instead of 8 starts") for text in told
    )


def test_limits_other_than_gpus() -> None:
    assert predicted("jobs", most=2).hours == pytest.approx(800 / 3600)
    assert predicted("jobs", most=2).limit == "max_concurrent"
    beside = predicted("jobs", replace(FACTS, beside=Figure(50.0, "measured")))
    assert beside.hours == pytest.approx(500 / 3600)
    assert beside.formula == "8 jobs / 4 at once x (50 s + 1 x 100 s + 1,000 x 1 / (1 x 10/s))"
    slow = predicted("jobs", replace(FACTS, cores=Figure(2.0, "given")))
    assert (slow.limit, slow.hours) == ("CPUs", pytest.approx(4800 / 2 / 3600))
    assert slow.gpu_hours == pytest.approx(slow.hours * 8)  # GPUs wait for the CPUs
    small = predicted("parallel", replace(FACTS, gpus=Figure(4.0, "given")))
    assert small.impossible == "a job takes 8 GPUs, and there are 4"
    free = predicted("jobs", replace(FACTS, gpus=Figure(None, "?")), engine={"gpus_per_replica": 0.0})
    assert (free.at_once, free.gpu_hours) == (8, 0.0)


def test_what_is_complete_takes_nothing_more() -> None:
    left = predicted("parallel", at_once=4, done=5)
    assert (left.units, left.cells) == (1, 3)
    assert left.hours == pytest.approx((100 + 1000 / 10) / 3600)
    assert predicted("jobs", done=8).formula == "every cell is complete"
    assert reasons("jobs", [predicted(way, done=8) for way in WAYS]) == ["nothing is left to do"]


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({"rate": Figure(None, "?")}, "unknown: the rate of an engine"),
        ({"gpus": Figure(None, "?")}, "unknown: the number of GPUs"),
        ({"rate": Figure(None, "?"), "gpus": Figure(None, "?")}, "unknown: the rate of an engine, the number of GPUs"),
    ],
)
def test_no_hours_without_the_numbers_for_them(known: dict[str, Figure], said: str) -> None:
    for way in WAYS:
        found = predicted(way, replace(FACTS, **known))
        assert (found.hours, found.gpu_hours) == (None, None)
        assert found.formula.endswith(said)
        assert found.units > 0
    unmeasured = predicted("jobs", replace(FACTS, start=Figure(None, "?")))
    assert unmeasured.hours == pytest.approx(200 / 3600)
    assert "1 x start that nobody has measured" in unmeasured.formula


def test_reasons_follow_from_the_numbers() -> None:
    ways = [predicted(way, lanes=2) for way in WAYS]
    told = reasons("sequential", ways)
    assert told[0].startswith("sequential: 0.222 h")
    assert told[1].startswith("jobs would take 0.111 h, limited by GPUs")
    assert any(line.startswith("parallel: 2 starts of engines to wait for instead of 8") for line in told)
    assert reasons("jobs", ways)[1] == "no other way is predicted to be faster"
    unknown = [predicted(way, replace(FACTS, rate=Figure(None, "?"))) for way in WAYS]
    assert reasons("jobs", unknown)[0] == "jobs: its hours are not known (the rate of an engine)"
    none = [predicted(way, replace(FACTS, gpus=Figure(1.0, "given"))) for way in WAYS]
    assert reasons("jobs", none) == ["way: jobs cannot be taken: a job takes 2 GPUs, and there are 1"]


def fleet_of(tmp_path: Path, **keys: Any) -> tuple[FleetSpec, FleetDir]:
    rows = [json.dumps({"prompt": f"{n}?", "target": "yes"}) for n in range(4)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    columns = {"prompt": "prompt", "target": "target"}
    run = {**RUN, "source": {"kind": "jsonl", "path": "rows.jsonl", "columns": columns}}
    run["engine"] = {"kind": "scripted", "row_ms": 10.0, "gpus_per_replica": 1.0}
    matrix = {"checkpoints": ["a", "b", "c"]}
    fleet = load_fleet(write_fleet(tmp_path, run=run, matrix=matrix, **keys))
    return fleet, FleetDir(fleet.fleet_dir)


def test_finished_cells_say_more_than_estimates(tmp_path: Path) -> None:
    fleet, place = fleet_of(tmp_path, cluster={"gpus": 2.0})
    before = plan_fleet(fleet, place)
    assert (before.facts.rate.value, before.facts.start.value) == (100.0, 0.0)  # as the engine is told
    assert before.added == ["a", "b", "c"]
    assert not (tmp_path / "fleet").exists()
    enter(place, fleet, fleet.matrix.checkpoints)
    make_cells(place, "a", {"a": YES}, "complete")  # 4 rows in 2 s: 0.1 beside, 1.4 a start
    now = time.time()
    for kind, ago in (("sweep.started", 1.9), ("engine.loaded", 0.5), ("sweep.ended", 0.0)):
        place.run("a").append_event(Event(kind, time=now - ago, duration=1.4 if kind == "engine.loaded" else None))
    after = plan_fleet(fleet, place)
    assert after.facts.rate.value == pytest.approx(8.0, rel=0.01)
    assert after.facts.rate.origin == "measured: 4 rows in 1 finished runs of this fleet"
    assert (after.facts.start.value, after.facts.beside.value) == (1.4, pytest.approx(0.1, abs=0.01))
    jobs = next(way for way in after.ways if way.way == "jobs")
    assert (jobs.units, jobs.hours) == (2, pytest.approx(2.0 / 3600, rel=0.01))
    (place.run("a").root / "status.json").write_bytes(b"{")
    assert measure(place, place.fleet().units()).rate is None


def test_the_seconds_of_a_swap_are_measured(tmp_path: Path) -> None:
    fleet, place = fleet_of(tmp_path, way="sequential")
    enter(place, fleet, fleet.matrix.checkpoints)
    (unit,) = place.fleet().units()
    make_cells(place, unit.name, dict.fromkeys("abc", YES), "complete")  # 12 rows in 2 s
    now = time.time()
    course = [
        ("sweep.started", 1.9, None), ("engine.loaded", 1.5, 0.4), ("sweep.ended", 1.0, None),
        ("sweep.started", 1.0, None), ("engine.swapped", 0.8, 0.2), ("sweep.ended", 0.0, None),
    ]  # fmt: skip
    for kind, ago, duration in course:
        place.run(unit.name).append_event(Event(kind, time=now - ago, duration=duration))
    found = measure(place, [unit])
    assert (found.start, found.swap) == (0.4, 0.2)
    assert (found.rate, found.beside) == (pytest.approx(12 / 1.3, rel=0.02), pytest.approx(0.1, abs=0.02))


def test_a_described_cluster_gives_gpus_and_cpus(tmp_path: Path) -> None:
    fleet, place = fleet_of(tmp_path, lanes=2, priority=[{"match": "a", "priority": 1}, {"match": "z*", "priority": 2}])
    nodes = Cluster((Node("n", cpus=8.0, ram=64 << 30, object_store=8 << 30, gpus=2.0, count=3),), "described")
    found = plan_fleet(fleet, place, nodes, engine_rate=4.0)
    assert found.facts.rate == Figure(4.0, "given")
    assert found.warnings == ["lanes: has no effect without way: sequential", "priority.1.match: 'z*' fits no cell"]
    assert (found.facts.gpus, found.facts.cores) == (Figure(6.0, "described"), Figure(24.0, "described"))
    (tmp_path / "rows.jsonl").unlink()
    lost = plan_fleet(fleet, place, nodes)
    assert set(lost.rows.values()) == {None}
    assert any(reason.startswith(f"rows of {tmp_path}/rows.jsonl are not known here") for reason in lost.reasons)
    assert all(way.hours is None for way in lost.ways)
    (tmp_path / "models").mkdir()
    watching = load_fleet(write_fleet(tmp_path, matrix={"checkpoints": {"watch": "models"}}))
    with pytest.raises(UserError, match="no checkpoint counts yet"):
        plan_fleet(watching, place)


def test_the_plan_is_printed_for_people_and_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet_of(tmp_path, cluster={"gpus": 2.0})
    command("plan", tmp_path / "fleet.yaml")
    told = capsys.readouterr().out
    assert "3 cells in 3 units" in told
    assert "jobs (chosen)" in told
    assert "swap" not in told  # there would be none
    sequential = ["--set", "way=sequential", "--set", "run.engine.reference=beside", "--engine-swap-seconds", "2.5"]
    command("plan", tmp_path / "fleet.yaml", *sequential)
    told = capsys.readouterr().out
    assert "swaps" in told
    assert "2 x 2.5 s" in told
    assert "swap of checkpoints: 2.5 s, given" in told
    assert command("plan", tmp_path / "fleet.yaml", "--json", "--set", "way=parallel") == 3  # of three GPUs
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in lines] == ["cell"] * 3 + ["way"] * 3 + ["plan"]
    assert [line["name"] for line in lines[:3]] == ["a", "b", "c"]
    assert lines[4]["impossible"] == "a job takes 3 GPUs, and there are 2"
