"""Looks at a model directory without loading it, so that a wrong path fails in the first second."""

from __future__ import annotations

import json
from pathlib import Path

from proctor.rows import UserError

WHERE = "engine.checkpoints"
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")


def check_model_directory(path: str) -> Path:
    """The directory, if it looks like a model: a configuration, weights and a chat template.

    Raises:
        UserError: says what is missing.
    """
    directory = Path(path)
    if not directory.is_dir():
        raise UserError(
            f"{path} is not a directory", where=WHERE, fix="give a local model directory, e.g. from `hf download NAME`"
        )
    if not (directory / "config.json").is_file():
        raise UserError(f"{path} has no config.json", where=WHERE, fix="give the directory that holds config.json")
    if not any(next(directory.glob(pattern), None) for pattern in _WEIGHTS):
        raise UserError(f"{path} has no weights", where=WHERE, fix="give a directory with *.safetensors files")
    if not _has_chat_template(directory):
        raise UserError(f"{path} has no chat template", where=WHERE, fix="put a chat_template.jinja beside config.json")
    return directory


def _has_chat_template(directory: Path) -> bool:
    if any((directory / name).is_file() for name in ("chat_template.jinja", "chat_template.json")):
        return True
    return any(
        "chat_template" in _json(directory / name) for name in ("tokenizer_config.json", "processor_config.json")
    )


def _json(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}", where=WHERE) from error
    return content if isinstance(content, dict) else {}
