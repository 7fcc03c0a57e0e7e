from __future__ import annotations

import json
from pathlib import Path

import pytest

import proctor.demo
from proctor.images.budget import qwen_vl_budget
from proctor.images.measured import MeasuredExpansion, measured_expansion
from proctor.rows import UserError
from tests.images.corpus import encoded, noise

pytestmark = [pytest.mark.slow, pytest.mark.model]
GRID = 3 * 8  # image_grid_thw: three int64


def test_a_qwen_processor_returns_what_the_arithmetic_says() -> None:
    shared = Path(proctor.demo.__file__).parent / "weights" / "shared"
    budget = qwen_vl_budget(shared)
    assert budget is not None
    images = [encoded(noise(size=size), "PNG") for size in [(64, 48), (300, 200), (640, 33)]]
    found = measured_expansion(shared, images)
    assert [one.model_bytes - GRID for one in found] == [
        budget.expansion(*one.size).pixel_values_bytes for one in found
    ]
    assert [(one.size, one.encoded_bytes) for one in found][:1] == [((64, 48), len(images[0]))]
    assert found[1].decoded_bytes == 3 * 300 * 200


def test_another_processor_is_measured(tmp_path: Path) -> None:
    config = {"image_processor_type": "SiglipImageProcessor", "size": {"height": 224, "width": 224}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    data = encoded(noise(), "JPEG")
    (found,) = measured_expansion(tmp_path, [data])
    assert found == MeasuredExpansion((64, 48), len(data), 3 * 64 * 48, 4 * 3 * 224 * 224)


def test_a_checkpoint_without_a_processor_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^engine\.checkpoints: .*its image processor cannot be loaded"):
        measured_expansion(tmp_path, [])


def test_an_image_that_the_processor_refuses_is_told() -> None:
    shared = Path(proctor.demo.__file__).parent / "weights" / "shared"
    with pytest.raises(UserError, match="does not take an image of 2 x 402 pixels: absolute aspect ratio"):
        measured_expansion(shared, [encoded(noise(size=(2, 402)), "PNG")])
