"""What a drill of a fleet runs, and what it finds wrong, without a cluster."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.drill import Drilled, differing
from benchmarks.drill_cells import ENGINES, HUNG, STUCK, EngineKind, answers_of, write_drill
from benchmarks.drill_seen import Seen, admitted_now, engines_under, gpus_at_most, working
from benchmarks.fleet import faults_of, to_json, to_markdown
from benchmarks.nodes import wait_for
from proctor.fleet import words
from proctor.fleet.cells import expand
from proctor.fleet.folder import FleetDir, base_of
from proctor.fleet.loading import load_fleet
from proctor.fleet.resubmit import enter
from proctor.rows import Event
from proctor.sources.registry import source_of
from tests.paired.made import make_run


@pytest.mark.parametrize("engine", ENGINES)
def test_eighty_cells_are_twenty_of_each_checkpoint(tmp_path: Path, engine: EngineKind) -> None:
    fleet = load_fleet(write_drill(tmp_path, 80, "http://127.0.0.1:1", engine))
    assert isinstance(fleet.matrix.checkpoints, list)
    units = expand(fleet, base_of(fleet), [fleet.matrix.checkpoints])
    assert len({unit.name for unit in units}) == 80
    assert [unit.name for unit in units[:2]] == [HUNG, STUCK]
    paths = Counter(unit.spec.engine.checkpoints[0].path for unit in units)
    assert sorted(paths.values()) == [20] * 4
    assert {unit.gpus for unit in units} == {6.0}
    assert len(source_of(units[0].spec).expected()) == 4
    if engine == "transformers":
        assert all((Path(path) / "model.safetensors").is_file() for path in paths)


def told(kind: str, unit: str, ago: float = 60.0) -> Event:
    return Event(kind, time=time.time() - ago, data={"unit": unit, "attempt": 1})


def test_what_holds_gpus_follows_from_the_events() -> None:
    events = [told(words.UNIT_ADMITTED, name) for name in "abcd"]
    assert gpus_at_most(events) == 24.0
    assert admitted_now(events) == set("abcd")
    events += [told(words.UNIT_GONE, "a"), told(words.UNIT_REQUEUED, "a"), told(words.UNIT_ADMITTED, "e")]
    assert gpus_at_most(events) == 24.0
    assert admitted_now(events) == set("bcde")
    assert gpus_at_most([*events, told(words.UNIT_ADMITTED, "a")]) == 30.0
    assert working(events) == []
    assert working(
        [*events, told(words.UNIT_STARTED, "b"), told(words.UNIT_STARTED, "c"), told(words.UNIT_ENDED, "c")]
    ) == ["b"]
    assert "b" in admitted_now([*events, told(words.UNIT_REQUEUED, "b", ago=0.0)])  # its driver may just be leaving


def test_engines_are_counted_by_what_ray_calls_their_workers() -> None:
    code = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()', 'ray::MapWorker(MapBatches(Infer))'])"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, start_new_session=True) as process:
        wait_for(lambda: engines_under(process.pid) == 1, "the worker is there", 60)
        process.communicate(b"\n")
    assert engines_under(process.pid) == 0


def test_cells_of_one_checkpoint_have_to_give_the_same_answers(tmp_path: Path) -> None:
    fleet = load_fleet(write_drill(tmp_path, 6, "http://127.0.0.1:1", "scripted"))
    place = FleetDir(fleet.fleet_dir)
    assert isinstance(fleet.matrix.checkpoints, list)
    enter(place, fleet, fleet.matrix.checkpoints)
    names = [unit.name for unit in place.fleet().units()]
    for name in names:
        make_run(place.run(name).location, {name: ["yes", "no"]})
    assert answers_of(place.run(names[0])) == {0: "yes", 1: "no"}
    assert differing(place) == []
    make_run(place.run(names[5]).location, {names[5]: ["yes", "yes"]})  # the second of its checkpoint
    assert differing(place) == [place.fleet().units()[5].spec.engine.checkpoints[0].path]


FINE = Drilled(
    "transformers", 0, 80, 60.0, Seen(most=4, looks=9, drivers={("a", 1)}), 24.0, 80, [],
    {words.CLUSTER_LOST: 1, words.WATCHER_STARTED: 2}, 3, ["no progress for 401 s"], ["pending for 71 s"], 400.0, 1, 2,
)  # fmt: skip


def test_each_thing_that_is_not_as_it_must_be_is_named() -> None:
    assert faults_of(FINE) == []
    wrong = [
        ({"exit_code": 3}, "the watcher ended with 3"),
        ({"complete": 79}, "79 of 80 cells are complete"),
        ({"differing": ["/m"]}, "cells of one checkpoint gave different answers: ['/m']"),
        ({"gpus": 30.0}, "30 GPUs admitted at the same time"),
        ({"seen": replace(FINE.seen, most=5)}, "5 drivers at the same time"),
        ({"seen": replace(FINE.seen, twice={"a"})}, "two drivers at the same time: ['a']"),
        ({"seen": replace(FINE.seen, unasked={"b"})}, "drivers of units that were not admitted: ['b']"),
        ({"hung": []}, "the cell that hangs was not reaped: []"),
        ({"stuck": []}, "the job that never starts was not withdrawn: []"),
        ({"events": {words.WATCHER_STARTED: 2}}, "the loss of the cluster was not noticed"),
        ({"node_caught": 0}, "no engine was at work on the second node when it was ended"),
        ({"head_caught": 0}, "no cell was at work when the head was ended"),
        ({"events": {words.CLUSTER_LOST: 1}}, "there were not two watchers"),
    ]
    for change, said in wrong:
        found = replace(FINE, **change)  # type: ignore[arg-type]
        assert faults_of(found) == [said]
        assert said in to_markdown(found, to_json(found, faults_of(found)))
