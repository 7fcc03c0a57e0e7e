"""What users reported of compiled encoders, by number, each planted in a small module: the bench has to see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the `transformers` extra")

from proctor.compile.gate import LEVELS, Appears, appears, gate, gate_target  # noqa: E402
from proctor.compile.model import Agreement, Compilation, Dispatch, Finding, Measured  # noqa: E402
from proctor.compile.verdict import verdict  # noqa: E402
from proctor.engines.compiling.apply import compile_in_place, undo  # noqa: E402
from proctor.engines.compiling.settings import Compile  # noqa: E402
from proctor.engines.compiling.targets import Target  # noqa: E402
from proctor.engines.compiling.watch import Seen  # noqa: E402
from tests.compile.invented import invented  # noqa: E402
from tests.compile.toys import (  # noqa: E402
    Tower,
    caught,
    coarse,
    drops,
    pixels,
    replacing,
    right_at_first,
    switch,
    tower,
)

TRACED = ("eager",)
GREAT = {"blocks": (0.352, 0.1)}
"""Seconds that would make any target worth compiling."""


def finding(measured: Measured, target: str = "blocks") -> Finding:
    return next(one for one in verdict(measured).findings if one.target == target)


def compilations(seen: Seen, target: str = "blocks", processes: int = 4) -> tuple[Compilation, ...]:
    return tuple(
        Compilation(
            target,
            process,
            "warm" if process else "cold",
            seen.seconds,
            seen.graphs,
            breaks=seen.breaks,
            recompiles=seen.recompiles,
            fallbacks=seen.fallbacks,
        )
        for process in range(processes)
    )


def failed(found: list[Agreement]) -> list[str]:
    return [one.shape for one in found if not one.passed]


class TestDeepstackIsLost:
    """Report 1: vllm #43617, sglang #33726."""

    @pytest.mark.slow
    def test_an_input_that_the_graph_drops(self) -> None:
        model = tower()
        found = gate("blocks", caught(model, ["blocks.2"]), switch([model.blocks[2]], drops("deepstack")), TRACED)
        assert set(failed(found)) == {one.shape for one in found if "without" not in one.shape}
        assert found[0].reason.startswith("as if deepstack had not been passed: error ")
        decided = finding(invented(GREAT, agreements=tuple(found)))
        assert decided.decision == "skip"
        assert "deepstack" in decided.reason

    def test_an_input_that_was_none_when_it_was_captured(self) -> None:
        """Right for the call that compiled it, so only a module that is compiled without the input shows it."""

        def captures(call: Callable[..., Any]) -> Callable[..., Any]:
            absent: list[bool] = []

            def run(rows: Any, deepstack: Any = None) -> Any:
                absent.append(deepstack is None)
                return call(rows, deepstack=None if absent[0] else deepstack)

            return run

        model = tower()
        calls = caught(model, ["blocks.2"])
        found = gate("blocks", calls, replacing([model.blocks[2]], captures), TRACED)
        assert "2 images" in failed(found)
        assert "as if deepstack had not been passed" in found[0].reason

    def test_an_input_of_some_blocks_only(self) -> None:
        """The model passes it to one block, and the first one, which is like it, is compiled without."""

        def shared(first: list[bool]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
            def captures(call: Callable[..., Any]) -> Callable[..., Any]:
                def run(rows: Any, deepstack: Any = None) -> Any:
                    first.append(deepstack is None)
                    return call(rows, deepstack=None if first[0] else deepstack)

                return run

            return captures

        model = tower()
        calls = {"2 images": caught(model, ["blocks.0", "blocks.2"])["2 images"]}
        modules = [model.blocks[0], model.blocks[2]]
        assert "2 images" in failed(gate("blocks", calls, replacing(modules, shared([])), TRACED))


class TestWrongAtOtherSizes:
    """Report 2: vllm #23207, #27760."""

    def test_right_at_the_size_of_the_warm_up_alone(self) -> None:
        model = tower()
        calls = caught(model, ["merger"])
        found = gate("merger", calls, switch([model.merger], right_at_first), TRACED)
        assert failed(found) == ["1 image", "5 images", "2 images, fewer rows", "2 images, more rows"]

    def test_a_workload_of_one_shape_hides_nothing(self) -> None:
        model = tower()
        calls = {"2 images": caught(model, ["merger"])["2 images"]}
        found = gate("merger", calls, switch([model.merger], right_at_first), TRACED)
        assert failed(found) == ["2 images, fewer rows", "2 images, more rows"]
        assert finding(invented({"merger": (0.3, 0.1)}, agreements=tuple(found)), "merger").decision == "skip"


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_3_the_level_at_which_a_half_precision_output_moves_away(level: str) -> None:
    """Pytorch #168126, #168186, #159239."""
    backends = {name: coarse if LEVELS.index(name) >= LEVELS.index(level) else "eager" for name in LEVELS}
    model = tower(torch.bfloat16)
    calls = {"2 images": caught(model, ["merger"])["2 images"]}
    found = gate("merger", calls, switch([model.merger], backends), LEVELS)
    assert appears(found, "merger") == Appears(level, level)
    wrong = next(one for one in found if not one.passed)
    assert (wrong.error_compiled or 0) > 5 * (wrong.error_eager or 1)
    assert "times the" in wrong.reason


def test_3_rounding_alone_is_a_difference_and_no_failure() -> None:
    """A compiler that keeps more digits inside gives other bits."""
    model = tower(torch.bfloat16)

    def wider(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(rows: Any) -> Any:
            norm = torch.nn.functional.layer_norm(rows.float(), (16,), *(one.float() for one in weights))
            return model.merger.out.float()(norm.reshape(-1, 64)).bfloat16()

        weights = model.merger.norm.weight, model.merger.norm.bias
        return run

    calls = caught(model, ["merger"])
    found = gate("merger", calls, replacing([model.merger], wider), TRACED)
    assert failed(found) == []
    assert appears(found, "merger") == Appears("eager", None)


@pytest.mark.slow
@pytest.mark.parametrize("fullgraph", [True, False])
def test_4_a_new_graph_for_each_shape_until_the_limit(fullgraph: bool) -> None:
    """sam2 #517, diffusers #11360, #5495."""
    model = tower()
    target = Target("blocks", ("blocks.0",))
    how = Compile(backend="eager", dynamic=False, fullgraph=fullgraph, recompile_limit=8)
    with torch.inference_mode():
        wanted = {rows: model(pixels(rows)) for rows in range(8, 52, 4)}
        watch = compile_in_place(model, [target], how)
        for rows, (merged, _) in wanted.items():
            assert torch.allclose(model(pixels(rows))[0], merged, atol=1e-6)
    seen = watch.counters["blocks"]
    undo(model, [target])
    assert seen.graphs == 8
    assert len(seen.recompiles) == 7
    assert len(seen.fallbacks) == 1
    flags = verdict(invented(GREAT, compilations=compilations(seen))).flags
    assert any("blocks: ran eagerly after a limit was hit" in flag for flag in flags)
    assert any("blocks: was compiled anew" in flag for flag in flags)


def test_5_a_tiny_module_is_slower_compiled_and_the_overhead_says_why() -> None:
    """Pytorch #119611, KernelBench #68: 3.1 us become 10.8 us."""
    measured = invented({"scale": (3.1e-6, 10.8e-6)}, dispatches=(Dispatch("scale", 7.6e-6),))
    decided = finding(measured, "scale")
    assert decided.decision == "skip"
    assert "slower" in decided.reason
    assert "a compiled call costs 7.60 µs" in decided.reason
    assert verdict(measured).best == ()


class TestOneClassTwoShapes:
    """Report 6: the main merger's norm is over 16 values here, those of the deepstack over 64."""

    def targets(self) -> list[Target]:
        return [
            Target("embed", ("embed",)),
            Target("blocks", ("blocks.0", "blocks.1", "blocks.3")),
            Target("mergers", ("merger", "deepstack.0", "deepstack.1")),
        ]

    @pytest.mark.slow
    def test_four_graphs_and_no_crash(self) -> None:
        model = tower()
        with torch.inference_mode():
            wanted = {rows: model(pixels(rows)) for rows in (24, 56)}
            watch = compile_in_place(model, self.targets(), Compile(backend="eager"))
            for rows, (merged, deep) in wanted.items():
                again, other = model(pixels(rows))
                assert torch.equal(again, merged)
                assert all(torch.equal(*pair) for pair in zip(other, deep, strict=True))
        graphs = {name: seen.graphs for name, seen in watch.counters.items()}
        undo(model, self.targets())
        assert graphs == {"embed": 1, "blocks": 1, "mergers": 2}
        assert all(not seen.fallbacks and not seen.breaks for seen in watch.counters.values())

    def test_all_of_them_agree(self) -> None:
        model = tower()
        mergers = self.targets()[2]
        found = gate_target(model, mergers, caught(model, mergers.modules), TRACED, Compile(dynamic=True))
        assert failed(found) == []

    def test_one_graph_for_both_is_a_failure_and_no_crash_of_the_bench(self) -> None:
        """What dropped guards do: whatever was compiled first runs for all."""

        def first_for_all(first: list[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
            def shares(call: Callable[..., Any]) -> Callable[..., Any]:
                def run(rows: Any) -> Any:
                    first.append(call.__self__)  # type: ignore[attr-defined]
                    mine = call.__self__  # type: ignore[attr-defined]
                    return torch.nn.functional.linear(first[0].norm(rows).reshape(-1, 64), mine.out.weight)

                return run

            return shares

        model: Tower = tower()
        modules = [model.deepstack[0], model.merger]
        calls = caught(model, ["deepstack.0", "merger"])
        found = gate("mergers", calls, replacing(modules, first_for_all([])), TRACED)
        assert not any(one.passed for one in found)
        assert "the compiled call failed: RuntimeError: Given normalized_shape=[64]" in found[0].reason


def test_7_a_switch_without_effect_is_not_compiled() -> None:
    """Determinism modes may set compiling off; the counters then stand still."""
    model = tower()
    target = Target("blocks", ("blocks.0",))
    with torch.inference_mode():
        watch = compile_in_place(model, [target], Compile(backend="eager"))
        with torch.compiler.set_stance("force_eager"):
            model(pixels(24))
    seen = watch.counters["blocks"]
    undo(model, [target])
    assert seen == Seen()
    measured = invented(GREAT, compilations=compilations(seen))
    assert finding(measured).decision == "inconclusive"
    assert "not compiled" in finding(measured).reason
    assert any(flag.startswith("blocks: not compiled") for flag in verdict(measured).flags)
