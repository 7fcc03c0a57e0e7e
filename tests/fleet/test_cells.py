"""From a fleet's YAML to its units: names, ways, and every mistake in one line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from proctor.fleet.cells import expand
from proctor.fleet.finding import find
from proctor.fleet.folder import base_of
from proctor.fleet.loading import load_fleet
from proctor.rows import UserError
from proctor.spec import Checkpoint
from proctor.spec.fleet import FleetSpec
from tests.fleet.making import RUN, write_fleet

TASKS = {"plain": {"kind": "exact"}, "strict": {"kind": "regex", "pattern": "(.*)"}}
SET = {"sampling.max_tokens": [8, 16], "engine.answer": ["one", "two words"]}


def units_of(path: Path) -> list[Any]:
    fleet = load_fleet(path)
    return expand(fleet, base_of(fleet), [find(fleet).checkpoints])


def test_every_cell_is_there_once_with_its_own_keys(tmp_path: Path) -> None:
    matrix = {"checkpoints": ["a", {"name": "b", "path": "elsewhere/x"}], "tasks": TASKS, "set": SET}
    units = units_of(write_fleet(tmp_path, matrix=matrix))
    assert len(units) == 2 * 2 * 2 * 2
    assert len({unit.name for unit in units}) == len(units)
    first = units[0]
    assert first.name == "a--plain--answer=one--max_tokens=8"
    assert first.spec.run_dir == f"{tmp_path}/fleet/cells/{first.name}"
    assert first.spec.source.path == f"{tmp_path}/rows.jsonl"
    for unit in units:
        (cell,) = unit.cells
        assert unit.spec.sampling.max_tokens == cell.choice["sampling.max_tokens"]
        assert unit.spec.engine.answer == cell.choice["engine.answer"]
        assert unit.spec.task.kind == TASKS[cell.task]["kind"]
        assert [one.name for one in unit.spec.engine.checkpoints] == [cell.checkpoint]


@pytest.mark.parametrize(
    ("way", "sizes", "gpus", "mode", "at_once"),
    [
        ({"way": "jobs"}, [1] * 5, 4.0, "restart", 1),
        ({"way": "parallel", "at_once": 2}, [2, 2, 1], 8.0, "restart", 2),
        ({"way": "sequential"}, [5], 4.0, "sequential", 1),
        ({"way": "sequential", "lanes": 2}, [3, 2], 4.0, "sequential", 1),
    ],
)
def test_a_way_decides_which_cells_share_a_run(
    tmp_path: Path, way: dict[str, Any], sizes: list[int], gpus: float, mode: str, at_once: int
) -> None:
    run = {**RUN, "engine": {"kind": "scripted", "replicas": 2, "gpus_per_replica": 2.0}}
    rules = [{"match": "c3*", "priority": 7}, {"match": "c*", "priority": -1}]
    path = write_fleet(tmp_path, run=run, matrix={"checkpoints": [f"c{n}" for n in range(5)]}, priority=rules, **way)
    units = units_of(path)
    assert [len(unit.cells) for unit in units] == sizes
    assert [cell.checkpoint for unit in units for cell in unit.cells] == [f"c{n}" for n in range(5)]
    assert {cell.name for unit in units for cell in unit.cells} == {f"c{n}" for n in range(5)}  # whatever the way
    assert units[0].gpus == gpus
    assert (units[0].spec.engine.mode, units[0].spec.stream.checkpoints_at_once) == (mode, at_once)
    assert [unit.priority for unit in units] == [
        7 if any(cell.checkpoint == "c3" for cell in unit.cells) else -1 for unit in units
    ]


@given(
    st.lists(st.lists(st.integers(0, 30), max_size=6), max_size=5), st.sampled_from(["jobs", "parallel", "sequential"])
)
def test_more_checkpoints_never_change_units_that_are_there(batches: list[list[int]], way: str) -> None:
    seen: set[int] = set()
    found = []
    for batch in batches:
        found.append([Checkpoint(name=f"c{n}", path=f"/c/{n}") for n in dict.fromkeys(batch) if n not in seen])
        seen |= set(batch)
    keys = {"fleet_dir": "/f", "run": RUN, "way": way, "at_once": 3, "lanes": 2, "matrix": {"tasks": TASKS}}
    fleet = FleetSpec.model_validate(keys)
    before: dict[str, Any] = {}
    for count in range(1, len(found) + 1):
        if any(found[:count]):
            units = {unit.name: unit for unit in expand(fleet, RUN, found[:count])}
            assert before.items() <= units.items()
            before = units
    cells = sorted((cell.checkpoint, cell.task) for unit in before.values() for cell in unit.cells)
    assert cells == sorted((f"c{n}", task) for n in seen for task in TASKS)


def test_the_run_spec_may_be_a_file_and_lie_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    run = {**RUN, "run_dir": "ignored", "engine": {"kind": "transformers", "checkpoints": ["models/a"]}}
    run["source"] = {**RUN["source"], "path": "../rows.jsonl"}
    (tmp_path / "runs" / "run.yaml").write_text(yaml.safe_dump(run), encoding="utf-8")
    matrix = {"set": {"source.path": ["x.jsonl", "/abs/y.jsonl"]}}
    path = write_fleet(tmp_path, run="runs/run.yaml", matrix=matrix)
    fleet = load_fleet(path, ["run.sampling.max_tokens=9", "lanes=3"])
    base = base_of(fleet)
    assert base["source"]["path"] == f"{tmp_path}/runs/../rows.jsonl"
    assert base["engine"] == {
        "kind": "transformers", "checkpoints": [{"name": "a", "path": f"{tmp_path}/runs/models/a"}],
    }  # fmt: skip
    assert base["sampling"] == {"max_tokens": 9}
    assert "run_dir" not in base
    assert fleet.lanes == 3
    assert [unit.spec.source.path for unit in units_of(path)] == [f"{tmp_path}/runs/x.jsonl", "/abs/y.jsonl"]


def test_what_a_fleet_gives_may_be_missing_in_the_run_spec(tmp_path: Path) -> None:
    run = {"source": {"kind": "jsonl"}, "engine": {"kind": "scripted"}}
    task = {"kind": "python", "directory": "here", "python": "m:T"}
    matrix = {"checkpoints": ["a"], "tasks": {"t": task}, "set": {"source.path": ["p.jsonl"]}}
    (unit,) = units_of(write_fleet(tmp_path, run=run, matrix=matrix))
    assert unit.spec.task.directory == f"{tmp_path}/here"
    assert unit.spec.source.path == f"{tmp_path}/p.jsonl"


REFUSED = [
    ({"matrix": {"set": {"engine.batch_sizes": [1]}}}, "matrix.set.engine.batch_sizes: unknown key 'batch_sizes' (did"),
    ({"matrix": {"set": {"sampling.max_tokens": [8, 0]}}}, "fleet.yaml:6: matrix.set.sampling.max_tokens: "),
    ({"matrix": {"set": {"sampling.max_tokens": []}}}, "sampling.max_tokens has no values"),
    ({"matrix": {"set": {"engine.checkpoints": [["a"]]}}}, "checkpoints stand in matrix.checkpoints"),
    ({"matrix": {"set": {"engine.mode": ["restart"]}}}, "it follows from way"),
    ({"matrix": {"set": {"engine.kind.x": [1]}}}, "engine.kind holds a single value"),
    ({"matrix": {"checkpoint": ["a"]}}, "unknown key 'checkpoint' (did you mean 'checkpoints'?)"),
    ({"matrix": {"checkpoints": ["x/a", "y/a"]}}, "two run directories are named 'a'"),
    ({"matrix": {"checkpoints": ["x/a", "y/A"]}}, "two run directories are named 'A'"),
    ({"matrix": {"checkpoints": []}}, "no checkpoints, so there are no cells"),
    ({"matrix": {}}, "no checkpoints, so there are no cells"),
    ({"matrix": {"tasks": {"a/b": {"kind": "exact"}}}}, "a/b"),
    ({"matrix": {"tasks": {"a": {"kind": "exact", "promt": "x"}}}}, "unknown key 'promt' (did you mean 'prompt'?)"),
    ({"way": "job"}, "way"),
    ({"fleet_dir": "ftp://x"}, "a fleet directory is a local directory or one of"),
    ({"cluster": {"address": "http://u:p@h:1"}}, "credentials"),
    ({"run": {**RUN, "engine": {"kind": "transformers", "env": {"HF_TOKEN": "x"}}}, "matrix": {"checkpoints": ["a"]}},
     "run.engine.env.HF_TOKEN holds a secret"),
    ({"run": {**RUN, "metrics": {"port": 9000}}}, "run.metrics.port: a port for each run of a fleet"),
    ({"matrix": {"checkpoints": ["a"], "set": {"sampling.top_p": [1, 1.0]}}}, "and each value once"),
    ({"matrix": {"checkpoints": "a"}}, "matrix.checkpoints: must be a list of checkpoints, or a block with glob, or"),
    ({"matrix": {"checkpoints": {"glob": "a*", "watch": "b"}}}, "must be a list of checkpoints, or a block with glob"),
    ({"matrix": {"checkpoints": {"glob": 3}}}, "fleet.yaml:4: matrix.checkpoints.glob: input should be a valid string"),
    ({"matrix": {"checkpoints": ["../.."]}}, "matrix.checkpoints.0: '..' does not have the form"),
    ({"run": {**RUN, "engine": None}}, "engine: must be a block of keys, and is empty"),
    ({"run": {**RUN, "engine": {"kind": "scripted", "gpus_per_replica": 2.0}}, "gpus_per_unit": 1.0,
      "matrix": {"checkpoints": ["a"]}}, "gpus_per_unit: 1, and the engines of a job take 2"),
    ({"run": "missing.yaml"}, "cannot read the spec"),
    ({"run": {**RUN, "sampling": {"max_token": 1}}}, "sampling.max_token: unknown key 'max_token' (did you mean"),
    ({"max_concurrent": "4"}, "'4' is text, not a number"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "said"), REFUSED)
def test_a_mistake_is_one_line_with_its_place(tmp_path: Path, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as caught:
        units_of(write_fleet(tmp_path, **keys))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_keys_that_are_no_names_become_digests(tmp_path: Path) -> None:
    run = {**RUN, "engine": {"kind": "transformers"}}
    keys = {"engine.env.a/b": ["1"], "engine.env.\N{LATIN SMALL LETTER E WITH ACUTE}": ["1"]}
    (unit,) = units_of(write_fleet(tmp_path, run=run, matrix={"checkpoints": ["c"], "set": keys}))
    assert re.fullmatch(r"c(--[0-9a-f]{16}=1){2}", unit.name)
    assert unit.spec.run_dir == f"{tmp_path}/fleet/cells/{unit.name}"


def test_long_and_odd_values_become_digests(tmp_path: Path) -> None:
    matrix = {
        "checkpoints": ["c" * 120],
        "set": {"engine.answer": ["a/b", "x" * 60, "x" * 61, "..", ""], "limits.sweeps": [1]},
    }
    names = [unit.name for unit in units_of(write_fleet(tmp_path, matrix=matrix))]
    assert len(set(names)) == 5
    assert all(len(name) <= 200 and "/" not in name for name in names)
