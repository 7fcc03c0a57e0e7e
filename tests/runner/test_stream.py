"""What Ray Data executes: its own plan, taken from the executor at work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from ray.data import DataContext
from ray.data._internal.execution.execution_callback import ExecutionCallback
from ray.data._internal.execution.operators.base_physical_operator import AllToAllOperator
from ray.data._internal.execution.operators.map_operator import MapOperator
from typing_extensions import override

from proctor.api import run
from proctor.rows import UserError
from proctor.runner.course import Sweep
from proctor.runner.exam import Exam
from proctor.runner.stream import _planned, pipeline
from tests.faults.helpers import records_of
from tests.runner.helpers import MakeSpec

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("local_ray")]


class Seen(ExecutionCallback):
    operators: ClassVar[list[Any]] = []

    @override
    def before_execution_starts(self, executor: Any) -> None:
        self.operators.extend(executor._topology)


@pytest.fixture(autouse=True)
def executed() -> Iterator[list[Any]]:
    """The physical operators of what was executed during the test."""
    classes = DataContext.get_current().custom_execution_callback_classes
    classes.append(Seen)
    Seen.operators.clear()
    yield Seen.operators
    classes.remove(Seen)


def options(operators: list[Any]) -> dict[str, dict[str, Any]]:
    return {op.name: op._ray_remote_args for op in operators if isinstance(op, MapOperator)}


def test_nothing_waits_for_all_that_comes_before_it(make_spec: MakeSpec, executed: list[Any]) -> None:
    outcome = run(make_spec(40))
    assert outcome.exit_code == 0, outcome.reasons
    assert not any(isinstance(op, AllToAllOperator) for op in executed)
    assert list(options(executed)) == [
        "ReadRows->MapBatches(prepare)",
        "MapBatches(Infer)",
        "MapBatches(finish)",
    ]


def test_the_capacity_of_a_spec_is_what_ray_is_asked_for(make_spec: MakeSpec, executed: list[Any]) -> None:
    capacity = {
        "read_memory_mb": 300,
        "prepare_memory_mb": 200,
        "concurrent_reads": 1,
        "prepare_workers": 2,
        "engine_memory_mb": 250,
        "engines_per_node": 1,
    }
    outcome = run(make_spec(40, capacity=capacity))
    assert outcome.exit_code == 0, outcome.reasons
    assert [record["row_id"] for record in records_of(outcome.run)] == list(range(40))
    asked = options(executed)
    assert asked["ReadRows"]["memory"] == 300e6
    assert asked["MapBatches(prepare)"]["memory"] == 200e6
    assert asked["MapBatches(Infer)"]["memory"] == 250e6
    most = {
        op.name: op.get_max_concurrency_limit() for op in executed if op.name in ("ReadRows", "MapBatches(prepare)")
    }
    assert most == {"ReadRows": 1, "MapBatches(prepare)": 2}
    (group,) = {str(asked["MapBatches(Infer)"]["scheduling_strategy"].placement_group.bundle_specs)}
    assert "node:" in group


def test_equal_capacities_let_ray_read_and_prepare_in_one_task(make_spec: MakeSpec, executed: list[Any]) -> None:
    same = {"read_memory_mb": 300, "prepare_memory_mb": 300, "concurrent_reads": 2, "prepare_workers": 2}
    assert run(make_spec(16, capacity=same)).exit_code == 0
    assert next(iter(options(executed))) == "ReadRows->MapBatches(prepare)"


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"capacity": {"read_memory_mb": 9_000_000}}, ["capacity.read_memory_mb: 9,000,000 MB", "lower it"]),
        ({"capacity": {"engine_memory_mb": 9_000_000}}, ["capacity.engine_memory_mb", "lets Ray have"]),
        (
            {"capacity": {"engines_per_node": 1}, "engine": {"replicas": 2}},
            ["engine.replicas: 2 engines", "room for 1", "engines_per_node"],
        ),
    ],
)
def test_what_can_never_be_had_is_refused_at_once(make_spec: MakeSpec, parts: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        run(make_spec(8, **parts))
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_large_run_is_planned_and_keeps_to_the_plan(make_spec: MakeSpec, executed: list[Any]) -> None:
    outcome = run(make_spec(12_000, stream={"block_rows": 2048}))
    assert outcome.exit_code == 0, outcome.reasons
    plan = outcome.run.read("plan")
    assert plan is not None
    assert (plan["verdict"], plan["rows"]) == ("fits", 12_000)
    asked = options(executed)
    assert asked["MapBatches(Infer)"]["memory"] == plan["capacity"]["engine_memory_mb"] * 1e6
    assert asked["ReadRows->MapBatches(prepare)"]["memory"] == plan["capacity"]["read_memory_mb"] * 1e6
    kept = outcome.run.spec()
    assert kept is not None
    assert kept.capacity is None, "the spec is kept as it was written"


def test_a_run_that_does_not_fit_is_refused_before_anything_is_written(make_spec: MakeSpec) -> None:
    spec = make_spec(12_000, capacity={"engine_memory_mb": 900_000})
    with pytest.raises(UserError) as caught:
        run(spec)
    assert "capacity: does not fit: engines of cluster: 0 of 1 find a place" in str(caught.value)
    assert "--force" in str(caught.value)
    assert not Path(spec.run_dir).exists()


def test_engines_on_gpus_get_whole_blocks_too(make_spec: MakeSpec) -> None:
    exam = Exam.of(make_spec(40, engine={"gpus_per_replica": 6.0}))
    groups = exam.source.groups(exam.expected, 8, 1_000_000)
    hub: Any = None
    made = _planned(lambda: pipeline(exam, Sweep("ck", 1, 8), groups, hub, {}), exam)
    engines = made._logical_plan.dag.input_dependencies[0]
    assert engines.ray_remote_args["num_gpus"] == 6.0
    assert (engines.batch_size, engines.min_rows_per_bundled_input) == (None, None)
