"""Checkpoints to swap between, damaged copies of them, and what comes of an engine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proctor.engines.base import Engine, EngineConfig
from proctor.engines.fingerprint import Fingerprint, asked_of, fingerprint
from proctor.engines.transformers import TransformersEngine
from proctor.rows import Response
from proctor.transfer.published import Published
from tests.engines.tiny import answers, ask_scene

REQUESTS = [ask_scene(number, max_tokens=16, logprobs=True) for number in range(6)]


def told(engine: Engine) -> Fingerprint:
    """What the engine answers to the probes."""
    return fingerprint(asked_of(engine))


def answered(engine: Engine) -> dict[int, Response]:
    """What it answers to scenes, in a batch."""
    return answers(engine, REQUESTS)


def hf_config(directory: Path, **changes: Any) -> EngineConfig:
    """Of a transformers engine with a checkpoint."""
    return EngineConfig("transformers", str(directory), **{"dtype": "float32", "batch_size": 8, **changes})


def loaded(wanted: EngineConfig) -> TransformersEngine:
    """A transformers engine that was started."""
    engine = TransformersEngine(wanted)
    engine.check()
    engine.load()
    return engine


def cold(wanted: EngineConfig) -> tuple[Fingerprint, dict[int, Response]]:
    """What an engine that was started answers."""
    engine = loaded(wanted)
    return told(engine), answered(engine)


def published(directory: Path) -> Published:
    """Weights of a checkpoint in shared memory."""
    from safetensors.torch import load_file

    from proctor.transfer.publishing import publish

    tensors: dict[str, Any] = {}
    for path in directory.glob("*.safetensors"):
        tensors |= load_file(path)
    return publish(tensors, name=directory.name)


def copy_with(source: Path, target: Path, **edited: Callable[[dict[str, Any]], Any]) -> Path:
    """A copy of a checkpoint with JSON files changed; a keyword is a file's name without its ending."""
    shutil.copytree(source, target)
    for name, edit in edited.items():
        path = target / f"{name}.json"
        content = json.loads(path.read_text())
        edit(content)
        path.write_text(json.dumps(content))
    return target


def retensored(source: Path, target: Path, edit: Callable[[dict[str, Any]], Any]) -> Path:
    """A copy of a checkpoint with other tensors."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, target)
    tensors = load_file(source / "model.safetensors")
    edit(tensors)
    (target / "model.safetensors").unlink()
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    return target
