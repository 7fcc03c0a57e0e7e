from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from PIL import Image
from safetensors import safe_open
from transformers import AutoModelForImageTextToText, AutoTokenizer
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from proctor.demo.batches import (
    IGNORED_LABEL,
    TOKENS_PER_FRAME,
    patches,
    prompt_ids,
    question_batch,
    shared_tokenizer,
    training_batch,
)
from proctor.demo.evaluate import evaluate
from proctor.demo.model import EOS_ID, IMAGE_ID, PAD_ID, WEIGHTS_FILE, new_model, save_weights, write_shared_files
from proctor.demo.scenes import answer, jpeg_frames, scene
from proctor.demo.weights import CHECKPOINTS, SHARED, WEIGHTS, model_dirs

pytestmark = pytest.mark.model

FIRST, LAST = CHECKPOINTS[0], CHECKPOINTS[-1]


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return model_dirs(tmp_path_factory.mktemp("models"))


def test_patches_equal_those_of_the_image_processor() -> None:
    jpeg = jpeg_frames(scene(4))[0]
    processor = Qwen2VLImageProcessorPil.from_pretrained(SHARED)
    output = processor([Image.open(io.BytesIO(jpeg))], return_tensors="np")
    assert output["image_grid_thw"].tolist() == [[1, 6, 8]]
    np.testing.assert_allclose(patches(jpeg), output["pixel_values"], atol=1e-6)


@pytest.mark.parametrize("frames", [1, 2, 3])
def test_a_prompt_holds_twelve_image_tokens_per_frame(frames: int) -> None:
    assert prompt_ids(frames, system=False).count(IMAGE_ID) == TOKENS_PER_FRAME * frames == 12 * frames


def test_labels_are_the_answers_and_nothing_else() -> None:
    numbers = range(40, 46)
    labels = training_batch(numbers).labels
    for number, row in zip(numbers, labels, strict=True):
        spoken = row[row != IGNORED_LABEL].tolist()
        assert spoken[-1] == EOS_ID
        assert shared_tokenizer().decode(spoken[:-1]) == answer(scene(number))


def test_questions_are_padded_on_the_left() -> None:
    batch = question_batch(range(8), system=False)
    assert (batch.input_ids[:, -1] != PAD_ID).all()
    assert ((batch.attention_mask == 0) == (batch.input_ids == PAD_ID)).all()


def test_four_checkpoints_ship_in_bf16_and_within_14_mb() -> None:
    files = [WEIGHTS / name / WEIGHTS_FILE for name in CHECKPOINTS]
    assert len(files) == 4
    assert sum(path.stat().st_size for path in WEIGHTS.rglob("*") if path.is_file()) <= 14_000_000
    for path in files:
        with safe_open(path, framework="pt") as weights:
            assert {weights.get_tensor(name).dtype for name in weights.keys()} == {torch.bfloat16}  # noqa: SIM118


def test_shared_files_are_what_the_code_writes(tmp_path: Path) -> None:
    write_shared_files(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in SHARED.iterdir()}
    for name in ("preprocessor_config.json", "video_preprocessor_config.json", "chat_template.jinja"):
        assert (tmp_path / name).read_text() == (SHARED / name).read_text()
    written, shipped = (json.loads((at / "config.json").read_text()) for at in (tmp_path, SHARED))
    assert written | {"transformers_version": shipped["transformers_version"]} == shipped
    written, shipped = (json.loads((at / "tokenizer.json").read_text()) for at in (tmp_path, SHARED))
    assert written["model"]["vocab"] == shipped["model"]["vocab"]


def test_saved_weights_load_back_as_they_were(tmp_path: Path) -> None:
    model = new_model(seed=3)
    write_shared_files(tmp_path)
    save_weights(model, tmp_path / WEIGHTS_FILE)
    loaded = AutoModelForImageTextToText.from_pretrained(tmp_path)
    assert loaded.dtype == torch.bfloat16
    assert sum(parameter.numel() for parameter in loaded.parameters()) == 1_664_640
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor.to(torch.bfloat16)), name


def test_model_directories_are_complete_and_in_training_order(directories: dict[str, Path]) -> None:
    assert tuple(directories) == CHECKPOINTS
    for directory in directories.values():
        assert {path.name for path in directory.iterdir()} == {
            *(path.name for path in SHARED.iterdir()),
            WEIGHTS_FILE,
        }
        assert AutoTokenizer.from_pretrained(directory).eos_token_id == EOS_ID


def test_changing_a_model_directory_leaves_the_package_alone(tmp_path: Path) -> None:
    directory = model_dirs(tmp_path)[LAST]
    before = (SHARED / "config.json").read_bytes()
    (directory / "config.json").write_text("{}")
    assert (SHARED / "config.json").read_bytes() == before
    assert (model_dirs(tmp_path)[LAST] / "config.json").read_bytes() == before


@pytest.mark.slow
def test_the_last_checkpoint_reads_the_road_and_the_first_does_not_yet(directories: dict[str, Path]) -> None:
    first, last = (
        evaluate(AutoModelForImageTextToText.from_pretrained(directories[name]).eval(), range(48), system=False)
        for name in (FIRST, LAST)
    )
    assert first.exact < 0.25
    assert last.exact > 0.5
    assert min(last.surface, last.curvature, last.readable) > 0.9
    assert last.obstacle > 0.6  # a constant answer gets about a third
    assert last.ade < 0.1 < first.ade
