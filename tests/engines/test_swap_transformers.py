"""Swaps of the transformers engine: whatever it answers after one is what a cold engine answers, to the last bit."""

from __future__ import annotations

import copy
import gc
import json
import shutil
import weakref
from pathlib import Path
from typing import Any

import pytest

from proctor.engines import SwapRefused
from proctor.engines.fingerprint import differences
from proctor.engines.transformers import TransformersEngine
from tests.engines.swapping import answered, cold, copy_with, loaded, published, retensored, told
from tests.engines.swapping import hf_config as config
from tests.engines.tiny import answers, ask
from tests.leaks import descriptors

pytestmark = pytest.mark.model
torch = pytest.importorskip("torch", reason="needs the `transformers` extra")
pytest.importorskip("transformers", reason="needs the `transformers` extra")


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


def test_swaps_leave_nothing_behind(checkpoints: list[Path]):
    """Neither open files nor memory of earlier weights: only what is in use stays mapped."""
    gc.collect()  # engines of other tests
    engine = loaded(config(checkpoints[0], dtype="auto"))
    counts = []
    for number in range(8):
        directory = checkpoints[number % 4]
        with published(directory) as weights:
            engine.swap(config(directory, dtype="auto"), weights.path)
        mapped = Path("/proc/self/maps").read_text().count("proctor-weights")
        counts.append((mapped, descriptors()))
    assert [mapped for mapped, _ in counts[1:]] == [1] * 7
    assert counts[-1][1] <= counts[1][1]  # fewer, where what other tests left goes meanwhile


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_weights_are_copied_into_those_that_are_there(checkpoints: list[Path]):
    wanted = {"device": "cuda"}
    engine = loaded(config(checkpoints[0], **wanted))
    model, place = engine._loaded._model, engine._loaded._model.lm_head.weight.data_ptr()
    for number, shared in ((1, True), (2, False), (0, True)):
        with published(checkpoints[number]) as weights:
            engine.swap(config(checkpoints[number], **wanted), weights.path if shared else "")
        assert engine._loaded._model is model
        assert model.lm_head.weight.data_ptr() == place
        assert told(engine) == cold(config(checkpoints[number], **wanted))[0]


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
