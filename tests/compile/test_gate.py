"""The gate as a whole, with PyTorch's compilers that generate no code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

torch = pytest.importorskip("torch", reason="needs the `transformers` extra")

from proctor.compile.captured import Caught  # noqa: E402
from proctor.compile.gate import Appears, agreement, appears, gate, gate_target, in_place  # noqa: E402
from proctor.compile.model import Agreement  # noqa: E402
from proctor.engines.compiling.settings import Compile  # noqa: E402
from proctor.engines.compiling.targets import Target  # noqa: E402
from tests.compile.toys import Block, caught, replacing, switch, tower  # noqa: E402

TRACED = ("eager",)


@pytest.mark.slow
def test_a_right_compiler_passes_at_every_shape_level_and_way_of_calling() -> None:
    model = tower()
    calls = caught(model, ["blocks.2"])
    found = gate("blocks", calls, switch([model.blocks[2]]), ("eager", "aot_eager"))
    shapes = ["2 images", "1 image", "5 images"]
    ways = ["fewer rows", "more rows", "other values", "without deepstack"]
    assert [one.shape for one in found] == 2 * [*shapes, *(f"2 images, {way}" for way in ways)]
    assert [one.level for one in found] == ["eager"] * 7 + ["aot_eager"] * 7
    for one in found:
        assert one.passed, one
        assert one.reason == ""
        assert one.steady_eager
        assert one.steady_compiled
        assert one.bitwise == 1
        assert 0 < (one.error_eager or 0) == one.error_compiled < 1e-6
    assert appears(found, "blocks") == Appears(None, None)
    assert msgspec.json.decode(msgspec.json.encode(found), type=list[Agreement]) == found
    assert model.blocks[2]._compiled_call_impl is None


def test_a_target_is_compiled_as_the_engine_does_it() -> None:
    model = tower()
    before = list(model.state_dict())
    seen: list[bool] = []

    def watched(module: Any, args: Any) -> None:
        seen.append(module._compiled_call_impl is not None)

    model.blocks[0].register_forward_pre_hook(watched)
    target = Target("blocks", ("blocks.0", "blocks.1"))
    calls = caught(model, ["blocks.0", "blocks.1"])
    seen.clear()
    found = gate_target(model, target, calls, TRACED, Compile(recompile_limit=1))
    assert {one.passed for one in found} == {True}
    assert {one.target for one in found} == {"blocks"}
    assert set(seen) == {True, False}
    assert all(module._compiled_call_impl is None for module in model.modules())
    assert list(model.state_dict()) == before


def test_what_holds_the_target_can_be_gated_too() -> None:
    """The whole encoder, with its blocks compiled."""
    model = tower()
    calls = {"2 images": caught(model, [""])["2 images"]}
    compiled = in_place(model, [Target("blocks", tuple(f"blocks.{n}" for n in range(4)))], Compile(backend="eager"))
    found = gate("encoder", calls, compiled, TRACED)
    assert [one.passed for one in found] == [True] * 4
    assert [one.shape for one in found][1:3] == ["2 images, fewer rows", "2 images, more rows"]


def gated(wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> list[Agreement]:
    """The gate on one block whose call is replaced in the compiled arm."""
    model = tower()
    return gate("blocks", caught(model, ["blocks.2"]), replacing([model.blocks[2]], wrap), TRACED)


def test_an_arm_that_does_not_repeat_itself_fails() -> None:
    def unsteady(call: Callable[..., Any]) -> Callable[..., Any]:
        count = iter(range(1000))
        return lambda *args, **kwargs: call(*args, **kwargs) * (1 + 3e-7 * (next(count) % 2))

    found = gated(unsteady)
    assert not any(one.passed for one in found)
    assert not any(one.steady_compiled for one in found)
    assert all(one.steady_eager for one in found)
    assert any("does not repeat its own output" in one.reason for one in found)


def test_a_module_that_draws_anew_each_time_is_as_steady_as_its_seed() -> None:
    model = tower()
    model.blocks[2].norm.register_forward_hook(lambda module, args, output: output + 0.1 * torch.rand(()))
    calls = caught(model, ["blocks.2"])
    found = gate("blocks", calls, replacing([model.blocks[2]], lambda call: call), TRACED)
    assert all(one.steady_eager and one.steady_compiled and one.bitwise == 1 for one in found)


def test_values_kept_from_the_first_call_fail() -> None:
    def keeps(call: Callable[..., Any]) -> Callable[..., Any]:
        kept: dict[Any, Any] = {}

        def run(rows: Any, **kwargs: Any) -> Any:
            return kept.setdefault((rows.shape, tuple(kwargs)), call(rows, **kwargs))

        return run

    failed = [one.shape for one in gated(keeps) if not one.passed]
    assert "2 images, other values" in failed
    assert "1 image" not in failed


def test_an_output_that_a_later_call_overwrites_is_judged_as_it_was() -> None:
    """As replayed graphs do it: the output lives in a buffer of the graph."""
    buffers: dict[Any, Any] = {}

    def reuses(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            output = call(*args, **kwargs)
            return buffers.setdefault(output.shape, torch.empty_like(output)).copy_(output)

        return run

    assert all(one.passed for one in gated(reuses))


def test_a_compiled_call_that_fails_is_a_gate_that_fails() -> None:
    def fails(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(rows: Any, **kwargs: Any) -> Any:
            if len(rows) == 60:
                raise RuntimeError("expected size 1024==4096\nat dim 0")
            return call(rows, **kwargs)

        return run

    found = gated(fails)
    failed = [one for one in found if not one.passed]
    assert [one.shape for one in failed] == ["5 images"]
    assert failed[0].reason == "the compiled call failed: RuntimeError: expected size 1024==4096"
    assert failed[0].error_compiled is None
    assert failed[0].bitwise == 0
    assert msgspec.json.decode(msgspec.json.encode(found), type=list[Agreement]) == found


def test_a_module_that_fails_as_it_was_written_is_not_judged() -> None:
    with pytest.raises(RuntimeError):
        gate("blocks", {"1 image": [Caught(Block(), (torch.ones(2, 3),), {})]}, switch([]), TRACED)


def test_without_any_call_there_is_nothing_to_say() -> None:
    assert gate("blocks", {}, switch([]), TRACED) == []
    assert gate("blocks", {"1 image": []}, switch([]), TRACED) == []


def test_where_float64_cannot_be_had_the_agreement_says_so() -> None:
    class Half(Block):
        def forward(self, rows: Any, deepstack: Any = None) -> Any:
            if rows.dtype == torch.float64:
                raise RuntimeError("no kernel")
            return super().forward(rows)

    block = Half()
    calls = {"1 image": [Caught(block, (torch.ones(4, 16),), {})]}
    found = gate("blocks", calls, replacing([block], lambda call: call), TRACED)
    assert all(one.passed for one in found)
    assert all(one.error_eager is None for one in found)
    assert found[0].reason == ("no reference in higher precision: it does not run in float64: RuntimeError: no kernel")


def test_a_target_that_is_not_compiled_is_said_to_have_been_compared_with_itself() -> None:
    model = tower()
    calls = caught(model, ["merger"])
    with torch.compiler.set_stance("force_eager"):
        found = gate_target(model, Target("merger", ("merger",)), calls, TRACED)
    assert all(one.passed for one in found)
    assert {one.reason for one in found} == {
        "merger was not compiled: no graph was made, and both arms ran the same code"
    }


@pytest.mark.slow
def test_a_limit_that_is_hit_leaves_a_part_compared_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.compile.gate._LIMIT", 1)
    model = tower()
    calls = caught(model, ["merger"])
    how = Compile(dynamic=False, recompile_limit=2)
    found = gate_target(model, Target("merger", ("merger",)), calls, TRACED, how)
    assert all(one.passed for one in found)
    assert all(one.reason.startswith("merger ran eagerly in part: recompile_limit of 2 was hit") for one in found)
    monkeypatch.undo()
    again = gate_target(model, Target("merger", ("merger",)), calls, TRACED, how)
    assert {one.reason for one in again} == {""}


def test_callables_can_be_compared_without_modules() -> None:
    wide = torch.linspace(-3, 3, 100, dtype=torch.float64)
    eager = wide.float()
    fine = agreement("sum", "all", lambda: eager, lambda: eager.clone(), lambda: wide, "inductor")
    assert fine.passed
    assert fine.steady_compiled
    wrong = agreement("sum", "all", lambda: eager, lambda: eager * 1.01, None, "inductor")
    assert not wrong.passed
    assert wrong.error_eager is None
    assert appears([fine, wrong], "sum") == Appears("inductor", "inductor")
    assert appears([fine, wrong], "product") == Appears(None, None)
