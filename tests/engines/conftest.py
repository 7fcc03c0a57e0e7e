"""The tiny model on disk, and vLLM's interpreter."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.engines.tiny import write_random_model

if TYPE_CHECKING:
    from proctor.engines.transformers import TransformersEngine


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="needs the `transformers` extra")
    pytest.importorskip("transformers", reason="needs the `transformers` extra")
    return write_random_model(tmp_path_factory.mktemp("models") / "random")


@pytest.fixture(scope="session")
def trained_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last of the demo's checkpoints."""
    from proctor.demo.weights import model_dirs

    directories = model_dirs(tmp_path_factory.mktemp("trained"))
    if not directories:
        pytest.skip("the demo's weights are not in this source tree")
    return list(directories.values())[-1]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The demo's four."""
    from proctor.demo.weights import model_dirs

    directories = model_dirs(tmp_path_factory.mktemp("checkpoints"))
    if not directories:
        pytest.skip("the demo's weights are not in this source tree")
    return list(directories.values())


@pytest.fixture
def engine(checkpoints: list[Path]) -> Iterator[TransformersEngine]:
    """A transformers engine that was started with the first of the demo's checkpoints."""
    pytest.importorskip("torch", reason="needs the `transformers` extra")
    pytest.importorskip("transformers", reason="needs the `transformers` extra")
    from tests.engines.swapping import hf_config, loaded

    engine = loaded(hf_config(checkpoints[0]))
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """The interpreter of vLLM's own environment: `.venv-vllm`, or what PROCTOR_VLLM_PYTHON says."""
    default = Path(__file__).parents[2] / ".venv-vllm" / "bin" / "python"
    python = Path(os.environ.get("PROCTOR_VLLM_PYTHON", default))
    if not python.is_file():
        pytest.skip(f"vLLM's environment is not there: no {python} (`make setup-vllm` makes it)")
    return python
