"""What models take, from their configurations; the expected numbers are worked out by hand or by the model itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proctor.capacity.cluster import Cluster, Node
from proctor.capacity.engines import read_models
from proctor.capacity.model import read_model
from proctor.capacity.planning import plan_with
from proctor.capacity.rowcost import ImageSize
from proctor.demo.weights import model_dirs
from proctor.rows import UserError
from tests.capacity.facts import facts, spec
from tests.capacity.models import PARAMETERS_8B, QWEN3_VL_8B, model_directory

ONE = {"w": ("BF16", [PARAMETERS_8B])}
SMALL = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 100}


def test_qwen3_vl_8b(tmp_path: Path) -> None:
    model = read_model(str(model_directory(tmp_path / "m", QWEN3_VL_8B, ONE)))
    assert model.weight_bytes == 2 * PARAMETERS_8B == 17_534_247_392
    # 36 layers x 2 x 8 heads x 128 x 2 bytes
    assert model.kv_token_bytes == 147_456
    assert model.longest == 262_144
    assert model.dtype == "bfloat16"


def test_the_type_that_is_asked_for_decides(tmp_path: Path) -> None:
    directory = str(model_directory(tmp_path / "m", QWEN3_VL_8B, ONE))
    assert read_model(directory, "float32").weight_bytes == 4 * PARAMETERS_8B
    assert read_model(directory, "float32").kv_token_bytes == 2 * 147_456


def test_auto_in_vllm_halves_what_is_stored_in_float32(tmp_path: Path) -> None:
    directory = str(model_directory(tmp_path / "m", SMALL, {"w": ("F32", [1000])}))
    assert read_model(directory).weight_bytes == 4000
    assert read_model(directory, vllm=True).weight_bytes == 2000


def test_quantised_weights_stay_as_they_are(tmp_path: Path) -> None:
    tensors = {"q": ("F8_E4M3", [10, 100]), "scale": ("F32", [10]), "packed": ("I8", [50]), "norm": ("BF16", [10])}
    config = {**SMALL, "torch_dtype": "bfloat16"}
    model = read_model(str(model_directory(tmp_path / "m", config, tensors)))
    assert model.weight_bytes == 1000 + 2 * 10 + 50 + 2 * 10


def test_heads_without_a_number_of_their_own(tmp_path: Path) -> None:
    model = read_model(str(model_directory(tmp_path / "m", SMALL, {})))
    assert model.kv_token_bytes == 2 * 2 * 64 * 4  # no grouping: all of the hidden size, twice, in float32
    assert model.kv_heads == 4


def test_latent_attention_keeps_one_vector(tmp_path: Path) -> None:
    config = {**SMALL, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "dtype": "bfloat16"}
    model = read_model(str(model_directory(tmp_path / "m", config, {})))
    assert model.kv_token_bytes == 2 * (512 + 64) * 2
    assert model.kv_split(8) == 1.0  # and tensor parallelism does not split it


def test_layers_of_linear_attention_keep_no_tokens(tmp_path: Path) -> None:
    config = {**SMALL, "num_hidden_layers": 4, "layer_types": ["linear_attention"] * 3 + ["full_attention"]}
    assert read_model(str(model_directory(tmp_path / "m", config, {}))).kv_layers == 1


def test_heads_are_split_over_ranks_until_they_run_out(tmp_path: Path) -> None:
    model = read_model(str(model_directory(tmp_path / "m", QWEN3_VL_8B, ONE)))
    assert [model.kv_split(ranks) for ranks in (1, 2, 8, 16)] == [1.0, 0.5, 0.125, 0.125]


def test_tokens_of_images_are_those_of_the_processor(tmp_path: Path) -> None:
    model = read_model(str(model_directory(tmp_path / "m", QWEN3_VL_8B, ONE)))
    full_hd, small = ImageSize(1080, 1920), ImageSize(360, 640)
    assert model.image_tokens([[full_hd]]) == (2040, 8160, 50_135_040)
    assert model.image_tokens([[small], [full_hd, small]]) == (2260, 9040, 55_541_760)
    assert model.image_tokens([[ImageSize(1, 5000)]]) == (0, 0, 0)  # refused by the model: takes nothing


def test_pixel_limits_of_the_processor_and_of_the_spec(tmp_path: Path) -> None:
    said = {"patch_size": 16, "merge_size": 2, "size": {"shortest_edge": 1024, "longest_edge": 65536}}
    directory = str(model_directory(tmp_path / "m", QWEN3_VL_8B, ONE, preprocessor_config=said))
    tokens = read_model(directory).image_tokens([[ImageSize(1080, 1920)]])
    assert tokens is not None
    assert tokens[0] <= 64
    options = {"mm_processor_kwargs": {"max_pixels": 4 * 65536}}
    assert read_model(directory, options=options).image_tokens([[ImageSize(1080, 1920)]]) > tokens


def test_tokens_of_another_family_are_not_known(tmp_path: Path) -> None:
    model = read_model(str(model_directory(tmp_path / "m", SMALL, {})))
    assert model.image_tokens([[ImageSize(10, 10)]]) is None


def test_the_model_that_ships_with_the_package(tmp_path: Path) -> None:
    directory = next(iter(model_dirs(tmp_path).values()))
    model = read_model(str(directory))
    stored = (directory / "model.safetensors").stat().st_size
    assert model.weight_bytes == pytest.approx(stored, rel=0.02)  # all bfloat16; the rest is the header
    assert model.kv_token_bytes == 3 * 2 * 2 * 32 * 2
    assert model.pixels is not None
    assert model.pixels.max_pixels == 65536


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON: Expecting property name"),
        ("[" * 100_000, "not JSON: maximum recursion depth"),
        ("[]", "not a JSON object"),
        ("{}", "has no num_attention_heads"),
        (json.dumps({**SMALL, "num_key_value_heads": "8x"}), "num_key_value_heads is '8x'"),
        (json.dumps({**SMALL, "intermediate_size": [16384, 16384]}), "intermediate_size is a list"),
        (json.dumps({**SMALL, "max_position_embeddings": "2k"}), "max_position_embeddings is '2k'"),
        (json.dumps({**SMALL, "hidden_size": 10**400}), "hidden_size is 1000000"),
        (json.dumps({**SMALL, "num_hidden_layers": -3}), "num_hidden_layers is -3"),
        (json.dumps({**SMALL, "vocab_size": True}), "vocab_size is True"),
    ],
)
def test_a_configuration_that_does_not_tell(tmp_path: Path, text: str, said: str) -> None:
    directory = model_directory(tmp_path / "m", SMALL, {"w": ("F32", [1000])})
    (directory / "config.json").write_text(text)
    model = read_model(str(directory))
    assert model.missing[0].startswith(f"{directory / 'config.json'}: {said}")
    assert model.weight_bytes == 4000


def test_a_part_for_the_language_model_with_three_numbers(tmp_path: Path) -> None:
    text = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    config = {"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 1152}}
    directory = model_directory(tmp_path / "m", config, {"w": ("BF16", [1000])})
    model = read_model(str(directory), "bfloat16")
    file = directory / "config.json"
    assert model.missing == (f"{file}: has no num_attention_heads", f"{file}: has no vocab_size")
    assert (model.hidden, model.intermediate, model.vision_hidden, model.weight_bytes) == (2560, 10240, 1152, 2000)


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_a_model_that_is_not_known_is_no_reason_to_refuse(tmp_path: Path, device: str) -> None:
    config = {"model_type": "gemma3", "text_config": {"hidden_size": 2560, "num_hidden_layers": 34}}
    directory = model_directory(tmp_path / "m", config, {"w": ("BF16", [1000])})
    engine = {"kind": "transformers", "checkpoints": [str(directory)], "device": device, "gpus_per_replica": 0.0}
    if device == "auto":
        engine["gpus_per_replica"] = 1.0
    run = spec(engine=engine)
    node = Node("n", 8, 64 * 10**9, 10**10, gpus=1, gpu_memory=24 * 10**9)
    made = plan_with(run, facts(models=tuple(read_models(run))), Cluster((node,), "test"))
    assert made.verdict == "fits"
    levels = {(check.level, check.formula) for check in made.checks if check.what == "model"}
    said = f"memory of the model not known: {directory / 'config.json'}: has no"
    assert levels == {("unknown", f"{said} num_attention_heads"), ("unknown", f"{said} vocab_size")}
    cache = [figure.value for figure in made.figures if figure.name in ("key-value cache", "activations")]
    assert cache == ([None, None] if device == "cpu" else [])


def test_a_model_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such model directory"):
        read_model(str(tmp_path / "m"))


def _header(**tensor: Any) -> bytes:
    plain = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    text = json.dumps({"a": {**plain, **tensor}}).encode()
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\xff" * 20,
        b"\x05\0\0\0\0\0\0\0[1,2]",
        b"\x08\0\0\0\0\0\0\0" + b'{"a":{}}',
        (100_000).to_bytes(8, "little") + b"[" * 100_000,
        _header(dtype=["x"]),
        _header(dtype="I8", data_offsets=["a", "b"]),
        _header(dtype="I8", data_offsets=[9, 5]),
        _header(shape=["a"]),
        _header(shape=[-1_000_000, 1_000_000]),
        _header(shape=[9_999_999_999, 9_999_999_999, 99_999_999_999_999]),
        _header(shape=5),
    ],
)
def test_a_weight_file_that_is_none(tmp_path: Path, damage: bytes) -> None:
    directory = model_directory(tmp_path / "m", SMALL, {})
    (directory / "model.safetensors").write_bytes(damage)
    model = read_model(str(directory))
    (line,) = model.missing
    assert line.startswith(f"{directory / 'model.safetensors'}: not a safetensors file: ")
    assert model.weight_bytes == 0


def test_a_folder_in_place_of_a_weight_file(tmp_path: Path) -> None:
    directory = model_directory(tmp_path / "m", SMALL, {})
    (directory / "model.safetensors").unlink()
    (directory / "model.safetensors").mkdir()
    assert read_model(str(directory)).missing == (f"{directory}/model.safetensors: cannot be read: Is a directory",)


def test_weights_that_lie_there_twice_count_once(tmp_path: Path) -> None:
    directory = model_directory(tmp_path / "m", SMALL, {"w": ("BF16", [1000])})
    (directory / "model.safetensors").rename(directory / "model-00001-of-00001.safetensors")
    index = directory / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": "model-00001-of-00001.safetensors"}}))
    (directory / "consolidated.safetensors").write_bytes((directory / "model-00001-of-00001.safetensors").read_bytes())
    assert read_model(str(directory), "bfloat16").weight_bytes == 2000
    index.write_text("{}")
    assert read_model(str(directory)).missing == (f"{index}: no index: no weight_map in this index",)
