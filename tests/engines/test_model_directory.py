from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from proctor.engines.base import EngineConfig
from proctor.engines.model_directory import check_model_directory
from proctor.engines.vllm import VllmEngine
from proctor.rows import UserError


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in ("config.json", "model.safetensors", "chat_template.jinja"):
        (tmp_path / name).write_text("{}")
    return tmp_path


def test_a_complete_directory_passes(directory: Path):
    assert check_model_directory(str(directory)) == directory


@pytest.mark.parametrize("home", ["tokenizer_config.json", "processor_config.json"])
def test_the_template_may_stand_in_a_configuration(directory: Path, home: str):
    (directory / "chat_template.jinja").unlink()
    (directory / home).write_text(json.dumps({"chat_template": "..."}))
    assert check_model_directory(str(directory)) == directory


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("config.json", "has no config.json"),
        ("model.safetensors", "has no weights"),
        ("chat_template.jinja", "has no chat template"),
    ],
)
def test_what_is_missing_is_named(directory: Path, missing: str, message: str):
    (directory / missing).unlink()
    with pytest.raises(UserError, match=message):
        check_model_directory(str(directory))


def test_a_hub_name_is_not_a_directory():
    with pytest.raises(UserError, match=r"engine.checkpoints: Qwen/Qwen3-VL is not a directory \(.*hf download"):
        check_model_directory("Qwen/Qwen3-VL")


def test_a_broken_configuration_is_named(directory: Path):
    (directory / "chat_template.jinja").unlink()
    (directory / "tokenizer_config.json").write_text("{")
    with pytest.raises(UserError, match=r"tokenizer_config.json is not JSON"):
        check_model_directory(str(directory))


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed here")
def test_an_environment_without_vllm_is_told_so(directory: Path):
    with pytest.raises(UserError, match=r"engine.python: vllm cannot be imported"):
        VllmEngine(EngineConfig("vllm", str(directory))).check()
