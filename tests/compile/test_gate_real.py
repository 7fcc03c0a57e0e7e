"""The gate on transformers' own classes: Qwen3-VL's vision tower with random weights, and the demo's tiny model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the `transformers` extra")
pytest.importorskip("transformers", reason="needs the `transformers` extra")

from proctor.compile.answers import as_probe, gate_answers  # noqa: E402
from proctor.compile.captured import Caught, catching  # noqa: E402
from proctor.compile.gate import Appears, appears, gate, gate_target, in_place  # noqa: E402
from proctor.compile.model import ProbeAnswers  # noqa: E402
from proctor.engines.compiling.settings import Compile  # noqa: E402
from proctor.engines.compiling.targets import Target, find_targets  # noqa: E402
from tests.compile.toys import blank, right_at_first  # noqa: E402
from tests.engines.conftest import trained_model  # noqa: E402
from tests.engines.tiny import ask_scene  # noqa: E402

__all__ = ["trained_model"]  # a fixture
pytestmark = [pytest.mark.model, pytest.mark.slow]

GRIDS = {"1 image": [[1, 6, 6]], "2 images": [[1, 4, 6], [1, 6, 8]], "3 images": [[1, 4, 4]] * 3}
"""Patches of each image along time, height and width."""


def qwen_tower(dtype: Any, depth: int = 2) -> Any:
    from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLVisionConfig
    from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLVisionModel

    torch.manual_seed(0)
    sizes = {"depth": depth, "hidden_size": 64, "intermediate_size": 128, "num_heads": 4, "out_hidden_size": 48}
    config = Qwen3VLVisionConfig(**sizes, patch_size=4, deepstack_visual_indexes=[0], num_position_embeddings=64)
    return Qwen3VLVisionModel(config).to(dtype).eval()


def calls_of(model: Any, targets: list[Target]) -> dict[str, dict[str, list[Caught]]]:
    """By target (the encoder is the one without a name) and shape."""
    found: dict[str, dict[str, list[Caught]]] = {"": {}, **{target.name: {} for target in targets}}
    for shape, sizes in GRIDS.items():
        grid = torch.tensor(sizes)
        patches = torch.randn(int(grid.prod(1).sum()), 96, generator=torch.Generator().manual_seed(len(sizes)))
        wanted = {"": [""], **{target.name: target.modules for target in targets}}
        with catching(model, wanted) as calls, torch.inference_mode():
            model(patches.to(model.dtype), grid)
        for name, some in calls.items():
            found[name][shape] = some
    return found


@pytest.mark.timeout(600)
def test_every_target_and_the_whole_tower_agree_when_they_are_traced() -> None:
    model = qwen_tower(torch.float32)
    targets = find_targets(model)
    calls = calls_of(model, targets)
    found = [one for t in targets for one in gate_target(model, t, calls[t.name], ("eager",))]
    found += gate("encoder", calls[""], in_place(model, targets), ("eager",))
    assert {one.target for one in found} == {"patch_embed", "blocks", "deepstack_mergers", "merger", "encoder"}
    assert {"2 images", "1 image, fewer rows", "1 image, other values"} <= {one.shape for one in found}
    for one in found:
        assert one.passed, one
        assert one.reason == ""
        assert one.bitwise == 1
        assert 0 < (one.error_eager or 0) < 1e-5
    assert not any(name.startswith("_orig") for name in model.state_dict())


@pytest.mark.timeout(600)
def test_generated_code_in_bfloat16_has_other_bits_and_is_no_worse() -> None:
    model = qwen_tower(torch.bfloat16, depth=1)
    target = next(one for one in find_targets(model) if one.name == "blocks")
    calls = {"1 image": calls_of(model, [target])["blocks"]["1 image"]}
    found = gate_target(model, target, calls, ("aot_eager", "inductor"))
    assert appears(found, "blocks") == Appears("inductor", None)
    for one in found:
        assert one.passed, one
        assert one.steady_compiled
        assert 1e-4 < (one.error_eager or 0) < 0.02


@contextmanager
def broken(module: Any, backend: Any) -> Iterator[Callable[[], str]]:
    module.compile(backend=backend, dynamic=True)
    try:
        yield lambda: ""
    finally:
        module._compiled_call_impl = None
        torch.compiler.reset()


@pytest.mark.timeout(600)
def test_answers_of_the_tiny_model_stay_and_those_of_a_blind_one_change(trained_model: Path) -> None:
    from proctor.engines.base import EngineConfig
    from proctor.engines.hf_model import HFModel
    from proctor.engines.prepare import prepare
    from proctor.rows import Response

    hf = HFModel(EngineConfig("transformers", str(trained_model), dtype="float32", device="cpu"))
    merger = hf._model.model.visual.merger
    rows = [prepare(as_probe(ask_scene(number, max_tokens=24)), hf.chat) for number in range(4)]

    def ask() -> list[Response]:
        return [response for row in rows for response in hf.answers([row], lambda _: None)]

    def compared(switch: Any) -> ProbeAnswers:
        def compiled() -> list[Response]:
            with switch():
                return ask()

        return gate_answers("merger", {number: f"scene {number}" for number in range(4)}, ask, compiled, "float32")

    traced = in_place(hf._model, [Target("merger", ("model.visual.merger",))], Compile())
    fine = compared(lambda: traced("eager"))
    assert fine.passed
    assert fine.changed == ()
    assert (fine.probes, fine.steady_eager, fine.steady_compiled) == (4, True, True)
    blind = compared(lambda: broken(merger, blank))
    assert not blind.passed
    assert blind.changed
    assert len(blind.margins) == len(blind.changed)
    assert all(margin is not None for margin in blind.margins)
    # Scenes of more than one frame lose all but the first, and are answered as before: outputs say what answers do not.
    assert compared(lambda: broken(merger, right_at_first)).passed
    with catching(hf._model, {"merger": ["model.visual.merger"]}) as calls:
        ask()
    shapes = {f"{len(call.args[0])} rows": [call] for call in calls["merger"]}
    assert len(shapes) > 1
    found = gate("merger", shapes, lambda level: broken(merger, right_at_first), ("eager",))
    assert not all(one.passed for one in found)
