"""Whole benches of the tiny model, with back ends that need no compiler; one with inductor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.compile import bench, sequence
from proctor.compile.bench import Advance, Options, explain, measure
from proctor.compile.collected import Collected
from proctor.compile.model import ANSWERS, ENCODER, Measured
from proctor.compile.orders import Order, Piece
from proctor.compile.verdict import verdict
from proctor.compile.worker import work
from proctor.demo.dataset import write_dataset
from proctor.rows import UserError
from proctor.spec import RunSpec, build_spec
from tests.engines.conftest import trained_model, vllm_python

__all__ = ["trained_model", "vllm_python"]  # fixtures
TARGETS = ["patch_embed", "blocks", "deepstack_mergers", "merger"]
pytestmark = [pytest.mark.slow, pytest.mark.model, pytest.mark.timeout(900)]


def spec_of(folder: Path, model: Path | str, kind: str = "transformers", **engine: Any) -> RunSpec:
    if not (folder / "data").exists():
        write_dataset(folder / "data", 12, first_scene=50_000, corrupt={})
    columns = {"images": ["frames"], "target": "target"}
    return build_spec(
        {
            "run_dir": str(folder / "run"),
            "source": {"kind": "mds", "path": str(folder / "data"), "columns": columns},
            "engine": {"kind": kind, "checkpoints": [str(model)], "batch_size": 2, **engine},
            "task": {"kind": "driving"},
            "sampling": {"max_tokens": 4},
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench")


@pytest.fixture(scope="module")
def steps() -> list[Advance]:
    return []


@pytest.fixture(scope="module")
def measured(folder: Path, trained_model: Path, steps: list[Advance]) -> Measured:
    spec = spec_of(folder, trained_model, dtype="float32", env={"OMP_NUM_THREADS": "1"})
    options = Options(backend="eager", rounds=4, warmups=1, processes=2, sample=12, answers=2)
    return measure(spec, options, steps.append)


def test_every_target_the_encoder_and_the_answers_are_timed_in_both_arms(measured: Measured) -> None:
    assert list(measured.targets) == TARGETS
    assert measured.targets["blocks"] == 3
    shapes = {shape.name for shape in measured.shapes}
    for target in (*TARGETS, ENCODER):
        for process in (0, 1):
            for number in (-1, 0, 1, 2, 3):
                found = [t for t in measured.timings if (t.target, t.process, t.round) == (target, process, number)]
                assert {(t.shape, t.arm) for t in found} == {(s, arm) for s in shapes for arm in ("eager", "compiled")}
    assert {t.round for t in measured.timings if t.target == ANSWERS} == {-1, 0, 2}
    assert all(t.seconds > 0 and t.clock == "monotonic" for t in measured.timings)


def test_shapes_are_those_of_the_source_with_the_patches_of_the_processor(measured: Measured) -> None:
    assert sum(shape.share for shape in measured.shapes) == pytest.approx(1.0)
    assert measured.rows == 12
    for shape in measured.shapes:
        assert shape.patches == 48 * shape.images  # 96 x 128 in patches of 16
        assert shape.rows == 2


def test_compiling_is_accounted_for_in_each_process(measured: Measured) -> None:
    assert {(c.target, c.process, c.cache) for c in measured.compilations} == {
        (target, process, cache) for target in TARGETS for process, cache in ((0, "cold"), (1, "warm"))
    }
    for one in measured.compilations:
        assert one.graphs == 1  # the deepstack mergers share theirs, and so do the blocks
        assert one.seconds > 0
        assert one.memory is not None
        assert not one.breaks
        assert not one.fallbacks


def test_dispatch_and_operators_are_told_of_each_target(measured: Measured) -> None:
    assert [one.target for one in measured.dispatches] == TARGETS
    for one in measured.dispatches:
        assert one.seconds > 0
        assert one.kernels is not None
        assert one.kernels["eager"] > 0


def test_outputs_and_answers_are_compared_at_every_shape(measured: Measured) -> None:
    shapes = {shape.name for shape in measured.shapes}
    for target in (*TARGETS, ENCODER):
        mine = [one for one in measured.agreements if one.target == target]
        assert shapes <= {one.shape for one in mine}
        assert all(one.passed and one.level == "eager" for one in mine)
    (answers,) = measured.answers
    assert answers.probes == sum(shape.rows for shape in measured.shapes)
    assert answers.passed
    assert not answers.changed


def test_tracing_alone_is_never_called_worth_it(measured: Measured) -> None:
    found = verdict(measured)
    assert found.best == ()
    assert {one.decision for one in found.findings} <= {"skip", "inconclusive"}
    assert found.amdahl is not None
    assert set(found.unaccounted) == {"eager", "compiled"}


def test_every_step_is_told(measured: Measured, steps: list[Advance]) -> None:
    assert measured.timings
    assert {step.process for step in steps} == {0, 1}
    assert {step.processes for step in steps} == {2}
    assert "compiling blocks" in [step.doing for step in steps]
    assert "round 4 of 4" in [step.doing for step in steps]


def test_after_an_interruption_there_is_what_was_measured_until_then(folder: Path, trained_model: Path) -> None:
    collected = Collected()

    def stop(step: Advance) -> None:
        if step.doing == "round 2 of 50":
            raise KeyboardInterrupt

    spec = spec_of(folder, trained_model, dtype="float32")
    options = Options(targets=("merger",), backend="eager", rounds=50, warmups=1, processes=2, sample=4, answers=0)
    with pytest.raises(KeyboardInterrupt):
        measure(spec, options, stop, collected=collected)
    assert collected.anything
    found = collected.measured()
    assert list(found.targets) == ["merger"]
    assert {t.round for t in found.timings} == {-1, 0, 1}


def test_a_target_that_does_not_exist_is_answered_with_those_there_are(folder: Path, trained_model: Path) -> None:
    with pytest.raises(UserError, match="no target and no module of the model is called 'block'") as error:
        measure(spec_of(folder, trained_model), Options(targets=("block",), processes=1, sample=2))
    assert "patch_embed, blocks" in str(error.value)


def at_hand(order: Order, folder: Path, **settings: Any) -> Iterator[Piece]:
    """A process's work, done in this one: how mistakes come from there the test above shows."""
    try:
        yield from work(order)
    except UserError as error:
        yield Piece(trouble=error.what, mistake=True, where=error.where, fix=error.fix)


def test_a_backend_that_does_not_exist_is_answered_with_those_there_are(
    folder: Path, trained_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "pieces", at_hand)
    with pytest.raises(UserError, match="torch has no backend 'inductr'") as error:
        measure(spec_of(folder, trained_model), Options(backend="inductr", processes=1, sample=2))
    assert "inductor" in str(error.value)


def test_explaining_names_the_lines_that_break_a_graph(folder: Path, trained_model: Path) -> None:
    found = explain(spec_of(folder, trained_model))
    targets = {one.target: one for one in found}
    assert list(targets) == [*TARGETS, ""]
    assert all(targets[name].graphs == 1 and not targets[name].breaks for name in TARGETS)
    assert targets["blocks"].like == 3
    whole = targets[""]
    assert whole.module == "model.visual"
    assert any("modeling_qwen3_vl.py" in line for line in whole.breaks)


def test_an_engine_without_an_encoder_of_its_own_is_refused(folder: Path) -> None:
    with pytest.raises(UserError, match="has no vision encoder that could be compiled"):
        measure(spec_of(folder, "anything", kind="scripted"))


@pytest.mark.vllm
def test_vllm_on_a_cpu_is_refused_before_anything_is_started(
    folder: Path, trained_model: Path, vllm_python: Path
) -> None:
    steps: list[Advance] = []
    with pytest.raises(UserError, match="vLLM's CPU build fails at the first image when its encoder is compiled"):
        measure(spec_of(folder, trained_model, kind="vllm", python=str(vllm_python)), Options(sample=4), steps.append)
    assert [step.doing for step in steps] == ["asking the engine whether it can"]


def test_inductor_finds_its_own_graphs_again(
    folder: Path, trained_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(folder, trained_model, dtype="float32", env={"OMP_NUM_THREADS": "1"})
    options = Options(targets=("merger",), rounds=2, warmups=1, processes=1, most=2, sample=6, answers=0)
    monkeypatch.setattr(sequence, "still_open", lambda *_: {"merger": 1})  # whatever the noise of this machine
    found = measure(spec, options)
    cold, warm = found.compilations
    assert {one.target for one in found.timings if one.process == 0} == {"merger", ENCODER}
    assert {one.target for one in found.timings if one.process == 1} == {"merger"}
    assert (found.subject["processes"], found.looks) == (2, 2)
    assert (cold.cache_hits, cold.cache_misses) == (0, 1)
    assert (warm.cache_hits, warm.cache_misses) == (1, 0)
    assert cold.seconds > warm.seconds > 0
    kernels = found.dispatches[0].kernels
    assert kernels is not None
    assert kernels["compiled"] < kernels["eager"]
    assert {one.level for one in found.agreements if one.target == "merger"} == {"eager", "aot_eager", "inductor"}
    assert all(one.passed for one in found.agreements)
    json.dumps(found.subject)
