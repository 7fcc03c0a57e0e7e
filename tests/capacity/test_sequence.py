"""Checkpoints that follow each other in one engine: what lies in memory beside it, and what a run waits for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proctor.capacity.cluster import Cluster, Node
from proctor.capacity.cures import apply
from proctor.capacity.engines import read_models
from proctor.capacity.evaluate import evaluate
from proctor.capacity.planning import Plan, plan_with
from proctor.capacity.sequence import course
from proctor.cli.plan import waits as waits_told
from proctor.spec import RunSpec
from tests.capacity.facts import facts, spec
from tests.capacity.models import QWEN3_VL_8B, model_directory

GB = 10**9
MIB = 2**20
SIZES = {"a": 4 * GB, "b": 2 * GB, "c": 3 * GB}


@pytest.fixture
def three(tmp_path: Path) -> list[str]:
    """Three checkpoints in bfloat16, of 4, 2 and 3 GB."""
    return [
        str(model_directory(tmp_path / name, QWEN3_VL_8B, {"w": ("BF16", [nbytes // 2])}))
        for name, nbytes in SIZES.items()
    ]


def sequential(checkpoints: list[str], kind: str = "transformers", **engine: Any) -> RunSpec:
    parts = {"kind": kind, "checkpoints": checkpoints, "mode": "sequential", "cpus_per_replica": 1.0, **engine}
    return spec(engine={"device": "cpu", **parts} if kind != "scripted" else parts)


def node(ram_gb: float, **parts: Any) -> Cluster:
    return Cluster((Node("n", 8, int(ram_gb * GB), 2 * GB, **parts),), "test")


def planned(run: RunSpec, cluster: Cluster, **known: Any) -> Plan:
    return plan_with(run, facts(models=tuple(read_models(run)), **known), cluster)


def figures(made: Plan) -> dict[str, float | None]:
    return {figure.name: figure.value for figure in made.figures}


def test_the_largest_checkpoint_that_is_still_to_come_lies_beside_the_engine(three: list[str]) -> None:
    plain = figures(planned(sequential(three, mode="restart"), node(64)))
    made = figures(planned(sequential(three), node(64)))
    ahead = 3 * GB + 64 * MIB
    assert made["weights read ahead"] == ahead
    assert made["memory of an engine"] == (plain["memory of an engine"] or 0) + ahead
    assert "weights converted" not in made  # views of what lies in shared memory
    for run in (sequential(three, mode="restart"), sequential(three[:1])):
        assert not {"weights read ahead", "a second engine's process"} & figures(planned(run, node(64))).keys()


def test_weights_of_another_type_are_there_twice_in_transformers(three: list[str]) -> None:
    asked: dict[str, Any] = {"dtype": "float32", "options": {}}
    assert figures(planned(sequential(three, **asked), node(64)))["weights converted"] == 6 * GB
    assert "weights converted" not in figures(planned(sequential(three, "vllm", **asked), node(64)))


def test_a_second_engine_beside_takes_what_the_first_one_takes(three: list[str]) -> None:
    first, beside = (figures(planned(sequential(three, reference=which), node(64))) for which in ("first", "beside"))
    more = (beside["memory of an engine"] or 0) - (first["memory of an engine"] or 0)
    assert more == beside["a second engine's process"]
    assert more > 4 * GB  # with the weights of the largest, its cache and its activations
    known = planned(sequential(three, reference="beside"), node(64), engine_memory=5.0 * GB)
    assert figures(known)["a second engine's process"] == 5 * GB
    scripted = figures(planned(sequential(["x", "y"], "scripted", reference="beside"), node(64)))
    assert scripted["a second engine's process"] == 21_000_000
    assert "weights read ahead" not in scripted


def test_a_checkpoint_that_cannot_be_counted_is_not_known(three: list[str]) -> None:
    Path(three[2], "model.safetensors").write_bytes(b"damaged")
    made = planned(sequential(three), node(64))
    assert figures(made)["weights read ahead"] is None
    assert "unknown" in {check.level for check in made.checks if check.what == "model"}


@pytest.mark.parametrize(
    ("ram_gb", "changes"),
    [(30, {}), (17, {"engine.reference": "first"}), (12, {"engine.mode": "restart"})],
)
def test_what_does_not_fit_is_left_out_before_anything_else(
    three: list[str], ram_gb: float, changes: dict[str, str]
) -> None:
    run = sequential(three, reference="beside")
    made = planned(run, node(ram_gb))
    assert {change.key: change.after for change in made.changes} == changes, made.reasons
    assert made.verdict == ("fits with these changes" if changes else "fits")


@pytest.mark.parametrize("replicas", [1, 3])
def test_whatever_is_changed_fits_by_the_same_arithmetic(three: list[str], replicas: int) -> None:
    run = sequential(three, reference="beside", replicas=replicas)
    known = facts(models=tuple(read_models(run)))
    verdicts = []
    for ram_gb in range(2, 100, 3):
        made = plan_with(run, known, node(ram_gb))
        verdicts.append(made.verdict)
        if made.verdict != "refused":
            after = apply(run, list(made.changes))
            assert not evaluate(after, known, node(ram_gb)).failing
            assert bool(made.changes) == bool(evaluate(run, known, node(ram_gb)).failing)
    order = {"refused": 0, "fits with these changes": 1, "fits": 2}
    assert sorted(verdicts, key=order.__getitem__) == verdicts  # more memory never turns a run away
    assert set(verdicts) == set(order)


def test_two_vllms_on_one_gpu_have_to_share_it(three: list[str]) -> None:
    gpus = {"gpus": 1, "gpu_memory": 80 * GB, "gpu_type": "H100"}

    def told(**engine: Any) -> list[str]:
        run = sequential(three, "vllm", device="auto", gpus_per_replica=1.0, max_model_len=4096, **engine)
        made = evaluate(run, facts(models=tuple(read_models(run))), node(64, **gpus))
        return [f"{check.level}: {check.formula}" for check in made.checks if check.where == "engine.reference"]

    (line,) = told(reference="beside")
    assert line == "tight: two engines take 2 x 73.6 GB > 80 GB: the second one will not start"
    assert told(reference="beside", options={"gpu_memory_utilization": 0.45}) == []
    assert told() == []


def waits(run: RunSpec, left: int | None = None) -> tuple[int, int]:
    found = course(run, left)
    return found.starts, found.swaps


def test_starts_that_a_run_waits_for(three: list[str]) -> None:
    at_once = sequential(["x", "y", "z"], "scripted", mode="restart").model_copy(
        update={"stream": spec(stream={"checkpoints_at_once": 2}).stream}
    )
    assert waits(at_once) == (2, 0)
    assert waits(sequential(three)) == (3, 0)
    assert "if all are, 1 start and 2 swaps" in course(sequential(three)).text
    assert waits(sequential(three, reference="beside")) == (1, 2)


def test_a_resume_waits_for_no_checkpoint_that_is_finished(three: list[str]) -> None:
    many = {"stream": {"checkpoints_at_once": 2}}
    at_once = spec(engine={"kind": "scripted", "checkpoints": list("uvwxyz")}, **many)
    assert [waits(at_once, left) for left in (6, 5, 2, 1, 0)] == [(3, 0), (3, 0), (1, 0), (1, 0), (0, 0)]
    assert [waits(sequential(three), left) for left in (3, 2, 1, 0)] == [(3, 0), (2, 0), (1, 0), (0, 0)]
    beside = sequential(three, reference="beside")
    assert [waits(beside, left) for left in (3, 2, 1, 0)] == [(1, 2), (1, 1), (1, 0), (0, 0)]
    assert "1 of 3 having no rows to do" in course(sequential(three), 2).text
    assert course(beside, 0).text == "no checkpoint has rows to do"
    known: dict[str, Any] = {"rows": 50_000, "engine_rate": 10.0, "start_seconds": 60.0}
    resumed = planned(sequential(three), node(64), **known, checkpoints=2).throughput
    assert resumed.hours == pytest.approx((5000 + 2 * 60) / 3600)
    finished = planned(sequential(three), node(64), **known | {"rows": 0}, checkpoints=0).throughput
    assert finished.hours == 0
    # Rows of a block are those of the checkpoints that are open: what Ray takes for a block is spread over as many.
    blocks = [
        next(stage for stage in planned(sequential(three), node(64), **known, checkpoints=left).throughput.stages[4:])
        for left in (1, 3)
    ]
    assert blocks[0].cpu_seconds < blocks[1].cpu_seconds


def test_hours_have_the_starts_in_them(three: list[str]) -> None:
    names = ["x", "y", "z"]
    restarted, swapped = (
        plan_with(sequential(names, "scripted", load_seconds=600.0, row_ms=20.0, **more), facts(), node(64)).throughput
        for more in ({"mode": "restart"}, {"reference": "beside"})
    )
    assert restarted.start_seconds == 600
    assert (restarted.hours or 0) - (swapped.hours or 0) == pytest.approx(2 / 6)
    assert (restarted.swap_seconds, swapped.swap_seconds) == (0, 0)
    given = planned(sequential(three), node(64), start_seconds=60.0, engine_rate=10.0).throughput
    assert given.hours == pytest.approx(100_000 / 10 / 3600 + 3 / 60)
    assert not given.bound_only
    plain = planned(sequential(three), node(64)).to_json()["throughput"]
    assert (plain["start_seconds"], plain["swap_seconds"]) == (None, None)
    assert (plain["course"]["starts"], plain["course"]["swaps"]) == (3, 0)


@pytest.mark.parametrize(("rows", "behind"), [(3_000, 0.0), (300, 50.0)])
def test_hours_have_the_swaps_in_them_and_what_a_second_engine_is_late(
    three: list[str], rows: int, behind: float
) -> None:
    """An engine works 100 or 10 seconds for a checkpoint, and a second one takes 60 to start."""
    run = sequential(three, reference="beside")
    known: dict[str, Any] = {"rows": rows, "engine_rate": 10.0, "start_seconds": 60.0}
    without = planned(run, node(64), **known).throughput
    assert (without.hours or 0) * 3600 == pytest.approx(rows / 10 + 60 + 2 * behind)
    timed = planned(run, node(64), **known, swap_seconds=4.0).throughput
    assert (timed.hours or 0) * 3600 == pytest.approx(rows / 10 + 60 + 2 * (4 + behind))


def test_what_is_not_in_the_hours_is_told(three: list[str]) -> None:
    """With the option that tells it."""

    def told(**known: float) -> list[str]:
        return list(waits_told(planned(sequential(three, reference="beside"), node(64), **known).throughput))

    text = "2 checkpoints swapped in; where one is not known, a second engine starts beside"
    unknown = "of engines, one after another, whose seconds are not known"
    options = "(--engine-start-seconds, --engine-swap-seconds)"
    assert told() == [f"and 1 start and 2 swaps {unknown} {options}: {text}"]
    started = f"of these 1 start of 60 s, one after another: {text}"
    assert told(start_seconds=60.0) == [started, f"and 2 swaps {unknown} (--engine-swap-seconds)"]
    both = told(start_seconds=60.0, swap_seconds=4.0)
    assert both == [f"of these 1 start of 60 s and 2 swaps of 4 s, one after another: {text}"]
    one = planned(sequential(three[:1]), node(64)).throughput
    assert list(waits_told(one)) == []
