"""What the transformers engine does not take over, and why; it answers as before then."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from proctor.engines import SwapRefused
from proctor.engines.capabilities import capabilities
from proctor.engines.transformers import TransformersEngine
from tests.engines.swapping import cold, copy_with, loaded, published, retensored, told
from tests.engines.swapping import hf_config as config

pytestmark = pytest.mark.model
torch = pytest.importorskip("torch", reason="needs the `transformers` extra")
pytest.importorskip("transformers", reason="needs the `transformers` extra")


def _less(content: dict[str, Any]) -> None:
    content["text_config"]["rms_norm_eps"] = 1e-5


def _quantized(content: dict[str, Any]) -> None:
    content["quantization_config"] = {"quant_method": "fp8"}


def _first(tensors: dict[str, Any]) -> str:
    return next(name for name in tensors if name.endswith("q_proj.weight"))


WRONG: dict[str, tuple[Callable[[Path, Path], Path], str]] = {
    "architecture": (
        lambda source, target: copy_with(source, target, config=_less),
        r"another architecture: config.json differs in `text_config.rms_norm_eps`: 1e-05, not 1e-06",
    ),
    "one key less": (
        lambda source, target: copy_with(source, target, config=lambda content: content.pop("image_token_id")),
        r"config.json has `image_token_id` on one side only",
    ),
    "quantized": (
        lambda source, target: copy_with(source, target, config=_quantized),
        r"quantized weights \(fp8\) cannot be replaced",
    ),
    "no configuration": (
        lambda source, target: Path(shutil.copytree(source, target, ignore=shutil.ignore_patterns("config.json"))),
        r"config.json of .* cannot be read",
    ),
    "a tensor is missing": (
        lambda source, target: retensored(source, target, lambda tensors: tensors.pop(_first(tensors))),
        r"the weights lack .*q_proj.weight",
    ),
    "a tensor too many": (
        lambda source, target: retensored(source, target, lambda tensors: tensors.update(more=torch.ones(1))),
        r"the weights have more, which the loaded checkpoint has not",
    ),
    "another shape": (
        lambda source, target: retensored(
            source, target, lambda tensors: tensors.update({_first(tensors): torch.ones(2, 3)})
        ),
        r"q_proj.weight has the shape \[2, 3\], not",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_another_kind_of_checkpoint_is_refused_before_anything_changes(
    wrong: str, engine: TransformersEngine, checkpoints: list[Path], tmp_path: Path
):
    make, said = WRONG[wrong]
    before, model = told(engine), engine._loaded._model
    directory = make(checkpoints[1], tmp_path / "wrong")
    with pytest.raises(SwapRefused, match=said):
        engine.swap(config(directory))
    assert engine._loaded._model is model
    assert told(engine) == before


def test_other_published_weights_are_refused(engine: TransformersEngine, checkpoints: list[Path], tmp_path: Path):
    short = retensored(checkpoints[1], tmp_path / "short", lambda tensors: tensors.pop(_first(tensors)))
    before = told(engine)
    with published(short) as weights, pytest.raises(SwapRefused, match=r"the weights lack .*q_proj"):
        engine.swap(config(checkpoints[1]), weights.path)
    with pytest.raises(SwapRefused, match="no published weights: "):
        engine.swap(config(checkpoints[1]), weights_path_of_nobody(checkpoints[1]))
    assert told(engine) == before


def weights_path_of_nobody(directory: Path) -> str:
    with published(directory) as weights:
        return weights.path


def test_files_that_run_code_are_refused(engine: TransformersEngine, checkpoints: list[Path], tmp_path: Path):
    directory = Path(shutil.copytree(checkpoints[1], tmp_path / "pickled"))
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")
    with pytest.raises(SwapRefused, match=r"only \*\.safetensors files can be swapped in"):
        engine.swap(config(directory))
    coded = Path(shutil.copytree(checkpoints[1], tmp_path / "coded"))
    (coded / "modeling_new.py").write_text("")
    with pytest.raises(SwapRefused, match=r"the model's own code differs: modeling_new.py"):
        engine.swap(config(coded))


def test_weights_that_are_not_in_memory_are_not_replaced(checkpoints: list[Path]):
    from proctor.engines import hf_weights

    model = loaded(config(checkpoints[0]))._loaded._model
    hf_weights.check_replaceable(model)
    model.to("meta")
    with pytest.raises(SwapRefused, match="not in memory"):
        hf_weights.check_replaceable(model)


def test_an_engine_whose_own_files_are_gone_is_not_compared(checkpoints: list[Path], tmp_path: Path):
    """What it loaded is known from its start; only where that could not be read there is nothing to compare."""
    directory = Path(shutil.copytree(checkpoints[0], tmp_path / "gone"))
    engine = loaded(config(directory))
    shutil.rmtree(directory)
    engine.swap(config(checkpoints[1]))
    assert told(engine) == cold(config(checkpoints[1]))[0]
    engine._outline = None
    with pytest.raises(SwapRefused, match="nothing can be compared"):
        engine.swap(config(checkpoints[2]))


def test_capabilities_say_what_stands_in_the_way(checkpoints: list[Path], tmp_path: Path):
    assert capabilities(config(checkpoints[0])).swap
    quantized = copy_with(checkpoints[0], tmp_path / "quantized", config=_quantized)
    for wanted, why in [
        (config(quantized), "quantized weights (fp8) cannot be replaced in a running engine"),
        (config(checkpoints[0], options={"variant": "x"}), "no swap with the option variant='x'"),
    ]:
        able = capabilities(wanted)
        assert (able.swap, able.why_no_swap) == (False, why)
    with pytest.raises(SwapRefused, match="differs in `options`"):
        loaded(config(checkpoints[0])).swap(config(checkpoints[1], options={"variant": "x"}))


def test_more_than_the_model_differs(engine: TransformersEngine, checkpoints: list[Path]):
    with pytest.raises(SwapRefused, match="differs in `dtype`"):
        engine.swap(replace(config(checkpoints[1]), dtype="bfloat16"))
