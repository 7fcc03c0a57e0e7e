from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proctor.images import MAX_PIXELS
from proctor.images.budget import PixelBudget, QwenVLBudget
from proctor.images.rules import ImageRules
from proctor.images.setup import image_rules
from proctor.rows import UserError
from proctor.spec import ImagesSpec, RunSpec, build_spec, differences, warnings_of


def spec(images: dict[str, Any], *directories: Path, **engine: Any) -> RunSpec:
    checkpoints = [str(directory) for directory in directories] or ["weights/a"]
    return build_spec(
        {
            "run_dir": "out",
            "source": {"kind": "mds", "path": "data", "columns": {"target": "t"}},
            "engine": {"kind": "transformers", "checkpoints": checkpoints, **engine},
            "task": {"kind": "exact", "prompt": "?"},
            "images": images,
        }
    )


def checkpoint(parent: Path, name: str, longest: int, kind: str = "Qwen2VLImageProcessor") -> Path:
    config = {"image_processor_type": kind, "patch_size": 16, "size": {"shortest_edge": 1024, "longest_edge": longest}}
    (parent / name).mkdir()
    (parent / name / "preprocessor_config.json").write_text(json.dumps(config))
    return parent / name


def test_the_limit_in_the_spec_is_that_of_the_decoder() -> None:
    assert ImagesSpec().max_pixels == MAX_PIXELS
    assert image_rules(spec({})) == ImageRules()


def test_a_number_is_a_budget_of_pixels() -> None:
    rules = image_rules(spec({"resize": 50_000, "scale_on_decode": True, "max_pixels": 10**6}))
    assert rules == ImageRules(10**6, PixelBudget(50_000), scale_on_decode=True)


def test_the_model_s_budget_is_read_from_its_checkpoints(tmp_path: Path) -> None:
    one, two = checkpoint(tmp_path, "one", 65_536), checkpoint(tmp_path, "two", 65_536)
    assert image_rules(spec({"resize": "model"}, one, two)).budget == QwenVLBudget(16, 2, 2, 1024, 65_536)
    smaller = {"mm_processor_kwargs": {"max_pixels": 20_000}}
    assert image_rules(spec({"resize": "model"}, one, options=smaller)).budget == QwenVLBudget(16, 2, 2, 1024, 20_000)


def test_checkpoints_that_differ_are_refused(tmp_path: Path) -> None:
    one, two = checkpoint(tmp_path, "one", 65_536), checkpoint(tmp_path, "two", 32_768)
    with pytest.raises(UserError, match=r"^images\.resize: model: the checkpoints one and two have different pixel"):
        image_rules(spec({"resize": "model"}, one, two))


def test_other_models_are_refused(tmp_path: Path) -> None:
    other = checkpoint(tmp_path, "other", 1, "CLIPImageProcessor")
    with pytest.raises(UserError, match=r"budget of other is not known.*\(write a number of pixels instead\)$"):
        image_rules(spec({"resize": "model"}, other))


def test_the_limit_can_only_be_lowered() -> None:
    with pytest.raises(UserError, match=r"images\.max_pixels: input should be less than or equal to 178956970"):
        spec({"max_pixels": 10**9})


def test_an_engine_without_a_model_directory_has_no_budget() -> None:
    with pytest.raises(UserError, match="model is for engines that load a model directory, not scripted"):
        spec({"resize": "model"}, kind="scripted")


def test_a_resume_must_treat_images_alike() -> None:
    (found,) = differences(spec({}), spec({"resize": 50_000}))
    assert str(found) == "images.resize: None -> 50000"


def test_scaling_without_resizing_is_warned_of() -> None:
    assert "images.scale_on_decode: has no effect without images.resize" in warnings_of(spec({"scale_on_decode": True}))
