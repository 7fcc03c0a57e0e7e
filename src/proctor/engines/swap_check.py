"""May a running engine take over another checkpoint? Everything that has to be the same is compared before any change.

Needs no torch: configurations and headers of weight files are read, not weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from proctor.engines.base import EngineConfig, SwapRefused

Layout = Mapping[str, tuple[str, tuple[int, ...]]]
"""Of a checkpoint's tensors, by name: type (safetensors' own word, e.g. ``BF16``) and shape."""

_NO_ARCHITECTURE = frozenset({"_name_or_path", "transformers_version"})
"""Keys of a config.json that say nothing about the model."""
_FORMAT = "dtype"
_OLD_FORMAT = "torch_dtype"
_QUANTIZED = ("quantization_config", "compression_config")
_BESIDE_WEIGHTS = (
    "tokenizer*", "vocab*", "merges*", "special_tokens_map.json", "added_tokens.json", "*.model", "*.tiktoken",
    "chat_template*", "*processor_config.json", "additional_chat_templates/*", "*.py",
)  # fmt: skip
"""Files that decide how prompts and images are read."""
GENERATION = "generation_config.json"


def check_configuration(own: EngineConfig, wanted: EngineConfig) -> None:
    """Only the model may be another one.

    Raises:
        SwapRefused: names what else differs.
    """
    there = replace(wanted, model=own.model, fault_state=own.fault_state)
    for name in own.__struct_fields__:
        if getattr(there, name) != getattr(own, name):
            raise SwapRefused(f"the configuration differs in `{name}`, not in the model alone")


def check_architecture(own: str, wanted: str, dtype: str) -> None:
    """Compares the two directories' config.json key by key.

    Args:
        own: directory of the checkpoint that is loaded.
        wanted: directory of the other one.
        dtype: the engine's number format: unless it is ``auto``, that of the files does not matter.

    Raises:
        SwapRefused: names the first key that differs, or the quantization.
    """
    here, there = _configuration(own), _configuration(wanted)
    for config in (here, there):
        method = quantization(config)
        if method:
            raise SwapRefused(f"quantized weights ({method}) cannot be replaced in a running engine")
    if dtype != "auto":
        here, there = _without(here, _FORMAT), _without(there, _FORMAT)
    difference = _difference(here, there, "")
    if difference:
        raise SwapRefused(f"another architecture: config.json {difference}")


def quantization(config: Mapping[str, Any]) -> str:
    """Name of the quantization that a config.json declares, at any depth; empty if there is none."""
    for key, value in config.items():
        if key in _QUANTIZED and value:
            return str(value.get("quant_method", key)) if isinstance(value, Mapping) else key
        if isinstance(value, Mapping) and (found := quantization(value)):
            return found
    return ""


def files_beside_weights(directory: str, *more: str) -> dict[str, str]:
    """SHA-256 of every file that decides how prompts and images are read, by name.

    Args:
        directory: a model directory.
        more: names of further files that matter.
    """
    home = Path(directory)
    found = {path for pattern in (*_BESIDE_WEIGHTS, *more) for path in home.glob(pattern) if path.is_file()}
    return {path.relative_to(home).as_posix(): sha256(path.read_bytes()).hexdigest() for path in sorted(found)}


def differing_file(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """The first file that is not the same on both sides; empty if there is none."""
    return next((name for name in sorted({*here, *there}) if here.get(name) != there.get(name)), "")


def layout_of(directory: str) -> Layout:
    """Names, types and shapes of a directory's tensors, from the headers of its safetensors files.

    Raises:
        SwapRefused: there are no such files, or they cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    layout: dict[str, tuple[str, tuple[int, ...]]] = {}
    try:
        for path in _weight_files(Path(directory)):
            with safe_open(path, framework="np") as file:
                for name in file.keys():  # noqa: SIM118 (no mapping)
                    part = file.get_slice(name)
                    layout[name] = (str(part.get_dtype()), tuple(part.get_shape()))
    except (OSError, ValueError, SafetensorError) as error:
        raise SwapRefused(f"the weights of {directory} cannot be read: {error}") from error
    return layout


def layout_of_entries(entries: Iterable[tuple[str, str, tuple[int, ...]]]) -> Layout:
    """The same of published weights: name, type and shape of each."""
    return {name: (dtype, tuple(shape)) for name, dtype, shape in entries}


def check_layout(own: Layout, wanted: Layout, dtype: str) -> None:
    """The two checkpoints have the same tensors.

    Without this a missing tensor would keep its old values, and a further one would be ignored, both in silence.

    Args:
        own: of the checkpoint that is loaded.
        wanted: of the other one.
        dtype: the engine's number format: unless it is ``auto``, types may differ.

    Raises:
        SwapRefused: names the first tensor that is missing, that is one too many, or that differs.
    """
    for name in sorted({*own, *wanted}):
        if name not in wanted:
            raise SwapRefused(f"the weights lack {name}")
        if name not in own:
            raise SwapRefused(f"the weights have {name}, which the loaded checkpoint has not")
        (own_type, own_shape), (type_, shape) = own[name], wanted[name]
        if shape != own_shape:
            raise SwapRefused(f"{name} has the shape {list(shape)}, not {list(own_shape)}")
        if dtype == "auto" and type_ != own_type:
            raise SwapRefused(f"{name} is {type_}, not {own_type}")


def _weight_files(directory: Path) -> list[Path]:
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        named = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        return [directory / name for name in sorted(set(named))]
    found = sorted(directory.glob("*.safetensors"))
    if not found:
        raise SwapRefused(f"{directory} has no *.safetensors files")
    return found


def _configuration(directory: str) -> dict[str, Any]:
    try:
        config = json.loads((Path(directory) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SwapRefused(f"config.json of {directory} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise SwapRefused(f"config.json of {directory} is no configuration")
    return _renamed(config)


def _renamed(config: Mapping[str, Any]) -> dict[str, Any]:
    """Under today's names, without what says nothing about the model."""
    return {
        (_FORMAT if key == _OLD_FORMAT else key): _renamed(value) if isinstance(value, Mapping) else value
        for key, value in config.items()
        if key not in _NO_ARCHITECTURE
    }


def _without(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {
        key: _without(value, name) if isinstance(value, Mapping) else value
        for key, value in config.items()
        if key != name
    }


def _difference(here: Mapping[str, Any], there: Mapping[str, Any], path: str) -> str:
    """The first key that differs, with its values; empty if none does."""
    for key in sorted({*here, *there}):
        name = f"{path}.{key}" if path else key
        if key not in here or key not in there:
            return f"has `{name}` on one side only"
        one, other = here[key], there[key]
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            if found := _difference(one, other, name):
                return found
        elif one != other or type(one) is not type(other):
            return f"differs in `{name}`: {other!r}, not {one!r}"
    return ""
