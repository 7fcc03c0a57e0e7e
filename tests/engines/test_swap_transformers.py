"""Swaps of the transformers engine: whatever it answers after one is what a cold engine answers, to the last bit."""

from __future__ import annotations

import copy
import gc
import json
import shutil
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from proctor.engines import EngineConfig, SwapRefused
from proctor.engines.capabilities import capabilities
from proctor.engines.fingerprint import Fingerprint, differences
from proctor.engines.transformers import TransformersEngine
from proctor.rows import Response
from tests.engines.swapping import answered, copy_with, published, retensored, told
from tests.engines.tiny import answers, ask

pytestmark = pytest.mark.model
torch = pytest.importorskip("torch", reason="needs the `transformers` extra")
pytest.importorskip("transformers", reason="needs the `transformers` extra")

Cold = tuple[Fingerprint, dict[int, Response]]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The demo's four."""
    from proctor.demo.weights import model_dirs

    return list(model_dirs(tmp_path_factory.mktemp("checkpoints")).values())


def config(directory: Path, **changes: Any) -> EngineConfig:
    return EngineConfig("transformers", str(directory), **{"dtype": "float32", "batch_size": 8, **changes})


def loaded(wanted: EngineConfig) -> TransformersEngine:
    engine = TransformersEngine(wanted)
    engine.check()
    engine.load()
    return engine


def cold(wanted: EngineConfig) -> Cold:
    engine = loaded(wanted)
    return told(engine), answered(engine)


@pytest.fixture
def engine(checkpoints: list[Path]) -> Iterator[TransformersEngine]:
    engine = loaded(config(checkpoints[0]))
    yield engine
    engine.close()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "auto"])
@pytest.mark.parametrize("shared", [True, False], ids=["published", "files"])
def test_swaps_along_all_checkpoints_equal_cold_engines(checkpoints: list[Path], dtype: str, shared: bool):
    first, *others = checkpoints
    engine = loaded(config(first, dtype=dtype))
    expected = {directory: cold(config(directory, dtype=dtype)) for directory in checkpoints}
    assert len({fingerprint for fingerprint, _ in expected.values()}) == len(checkpoints)
    for directory in (*others, first, first):
        if shared:
            with published(directory) as weights:
                engine.swap(config(directory, dtype=dtype), weights.path)
        else:
            engine.swap(config(directory, dtype=dtype))
        fingerprint, responses = expected[directory]
        assert differences(fingerprint, told(engine)) == ""
        assert answered(engine) == responses


def test_published_weights_are_taken_without_a_copy(checkpoints: list[Path]):
    engine = loaded(config(checkpoints[0], dtype="auto"))
    before = weakref.ref(engine._loaded._model)
    with published(checkpoints[1]) as weights:
        engine.swap(config(checkpoints[1], dtype="auto"), weights.path)
        parameters = list(engine._loaded._model.parameters())
        assert len({parameter.untyped_storage().data_ptr() for parameter in parameters}) == 1
        assert parameters[0].untyped_storage().nbytes() == weights.nbytes
    gc.collect()
    assert before() is None
    assert told(engine) == cold(config(checkpoints[1], dtype="auto"))[0]


def test_tied_weights_are_tied_again(engine: TransformersEngine, checkpoints: list[Path]):
    with published(checkpoints[3]) as weights:
        engine.swap(config(checkpoints[3]), weights.path)
    model = engine._loaded._model
    assert model.lm_head.weight is model.get_input_embeddings().weight


def test_a_fingerprint_sees_what_assigning_without_tying_does(engine: TransformersEngine, checkpoints: list[Path]):
    """The plain way to do it, which goes wrong without a word: the head keeps the old embedding."""
    from safetensors.torch import load_file

    tensors = {name: tensor.float() for name, tensor in load_file(checkpoints[3] / "model.safetensors").items()}
    engine._loaded._model.load_state_dict(tensors, strict=False, assign=True)
    expected, _ = cold(config(checkpoints[3]))
    assert "differ" in differences(expected, told(engine))


def test_a_fingerprint_sees_two_tensors_that_changed_places(
    engine: TransformersEngine, checkpoints: list[Path], tmp_path: Path
):
    def exchange(tensors: dict[str, Any]) -> None:
        names = [name for name in tensors if "language_model" in name and name.endswith("up_proj.weight")]
        tensors[names[0]], tensors[names[1]] = tensors[names[1]], tensors[names[0]]

    wrong = retensored(checkpoints[1], tmp_path / "wrong", exchange)
    engine.swap(config(wrong))
    assert "differ" in differences(cold(config(checkpoints[1]))[0], told(engine))


def test_the_file_as_it_is_now_is_what_counts(engine: TransformersEngine, checkpoints: list[Path], tmp_path: Path):
    directory = Path(shutil.copytree(checkpoints[1], tmp_path / "latest"))
    engine.swap(config(directory))
    before = told(engine)
    shutil.copyfile(checkpoints[2] / "model.safetensors", directory / "next")
    (directory / "next").replace(directory / "model.safetensors")
    engine.swap(config(directory))
    assert told(engine) != before
    assert told(engine) == cold(config(checkpoints[2]))[0]


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


def test_types_of_the_files_matter_only_where_they_decide(checkpoints: list[Path], tmp_path: Path):
    def widen(tensors: dict[str, Any]) -> None:
        for name in tensors:
            tensors[name] = tensors[name].float()

    wide = retensored(checkpoints[1], tmp_path / "wide", widen)
    engine = loaded(config(checkpoints[0]))
    engine.swap(config(wide))
    assert told(engine) == cold(config(wide))[0]
    with pytest.raises(SwapRefused, match="is F32, not BF16"):
        loaded(config(checkpoints[0], dtype="auto")).swap(config(wide, dtype="auto"))


def test_what_stands_beside_the_weights_is_renewed(engine: TransformersEngine, checkpoints: list[Path], tmp_path: Path):
    """Another template, and another token that ends an answer."""
    same = engine._loaded.processor
    engine.swap(config(checkpoints[1]))
    assert engine._loaded.processor is same
    ending = answers(engine, [ask(1, max_tokens=16)])[1].token_ids[3]
    directory = copy_with(
        checkpoints[1], tmp_path / "other", generation_config=lambda content: content.update(eos_token_id=[2, ending])
    )
    template = directory / "chat_template.jinja"
    template.write_text(template.read_text() + "{{ '7' }}")
    engine.swap(config(directory))
    assert told(engine) == cold(config(directory))[0]
    assert engine._loaded.processor is not same
    assert ending in engine._loaded._end_ids
    engine.swap(config(checkpoints[1]))
    assert told(engine) == cold(config(checkpoints[1]))[0]


def test_options_stay_in_force(checkpoints: list[Path]):
    wanted = {"options": {"attn_implementation": "eager", "pad_to_multiple_of": 64}}
    engine = loaded(config(checkpoints[0], **wanted))
    with published(checkpoints[2]) as weights:
        engine.swap(config(checkpoints[2], **wanted), weights.path)
    assert engine._loaded._model.config._attn_implementation == "eager"
    assert told(engine) == cold(config(checkpoints[2], **wanted))[0]


@pytest.mark.parametrize("kind", ["write_text_model", "write_llava"])
def test_other_families_are_swapped_too(kind: str, tmp_path: Path):
    """Untied text models; models whose files have older names for their tensors than the model has."""
    from tests.engines import other_models

    write = getattr(other_models, kind)
    one, two = (write(tmp_path / name) for name in ("one", "two"))
    engine = loaded(config(one))
    before = told(engine)
    with published(two) as weights:
        engine.swap(config(two), weights.path)
    assert told(engine) == cold(config(two))[0] != before
    assert {answer.failure for answer in told(engine).answers} >= {""}


def test_on_another_device_weights_are_written_in_place(checkpoints: list[Path]):
    from proctor.engines import hf_weights

    model, fresh = (loaded(config(directory))._loaded._model for directory in checkpoints[:2])
    place, kept = model.lm_head.weight.data_ptr(), copy.deepcopy(fresh.state_dict())
    hf_weights.overwrite(model, fresh)
    assert model.lm_head.weight.data_ptr() == place == model.get_input_embeddings().weight.data_ptr()
    assert all(torch.equal(tensor, kept[name]) for name, tensor in model.state_dict().items())


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


def test_sharded_checkpoints_are_read_by_their_index(checkpoints: list[Path], tmp_path: Path):
    from safetensors.torch import load_file, save_file

    sharded = Path(shutil.copytree(checkpoints[1], tmp_path / "sharded"))
    tensors = load_file(sharded / "model.safetensors")
    (sharded / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for part, held in parts.items():
        save_file({name: tensors[name] for name in held}, sharded / part, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: part for part, held in parts.items() for name in held}}
    (sharded / "model.safetensors.index.json").write_text(json.dumps(index))
    engine = loaded(config(checkpoints[0]))
    engine.swap(config(sharded))
    assert told(engine) == cold(config(checkpoints[1]))[0]


def test_more_than_the_model_differs(engine: TransformersEngine, checkpoints: list[Path]):
    with pytest.raises(SwapRefused, match="differs in `dtype`"):
        engine.swap(replace(config(checkpoints[1]), dtype="bfloat16"))
