"""May a running engine take over another checkpoint? Everything that has to be the same is compared before any change.

Needs no torch: configurations and headers of weight files are read, not weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from proctor.engines.base import EngineConfig, SwapRefused
from proctor.rows import UserError
from proctor.transfer.safetensors import read_header, weight_files

Entry = tuple[str, str, tuple[int, ...]]
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


@dataclass(frozen=True)
class Outline:
    """What two checkpoints have in common if one engine can serve both, one after the other.

    Attributes:
        directory: where the checkpoint lies.
        architecture: its config.json, without what says nothing about the model.
        files: SHA-256 of every file beside the weights that decides how prompts are read and answers end.
        layout: its tensors.
        ties: those of them that are further names of others.
    """

    directory: str
    architecture: Mapping[str, Any]
    files: Mapping[str, str]
    layout: Layout
    ties: frozenset[str] = frozenset()


def outline_of(directory: str, entries: Iterable[Entry] | None = None, ties: Iterable[str] = ()) -> Outline:
    """Reads configuration and headers.

    Args:
        directory: a model directory.
        entries: of published weights: name, type and shape of each tensor, instead of those of the directory's files.
        ties: which of `entries` are further names of others.

    Raises:
        SwapRefused: the configuration or the weights cannot be read, or the weights are not safetensors.
    """
    architecture = _configuration(directory)
    layout = _layout_of(directory) if entries is None else {name: (type_, shape) for name, type_, shape in entries}
    return Outline(directory, architecture, _files_of(directory), layout, frozenset(ties))


def known_outline(directory: str) -> Outline | None:
    """The same, of what an engine has loaded; None where it cannot be had, so that nothing can be compared with it."""
    try:
        return outline_of(directory)
    except SwapRefused:
        return None


def check_outlines(own: Outline | None, wanted: Outline, dtype: str) -> None:
    """The two checkpoints are of one architecture, not quantized, and have the same tensors.

    Args:
        own: what is loaded.
        wanted: the other one.
        dtype: the engine's number format: unless it is ``auto``, that of the files does not matter.

    Raises:
        SwapRefused: names the first thing that differs, or the quantization.
    """
    if own is None:
        raise SwapRefused("the loaded checkpoint's own files could not be read, so nothing can be compared with them")
    for outline in (own, wanted):
        method = quantization(outline.architecture)
        if method:
            raise SwapRefused(f"quantized weights ({method}) cannot be replaced in a running engine")
    here, there = own.architecture, wanted.architecture
    if dtype != "auto":
        here, there = _without(here, _FORMAT), _without(there, _FORMAT)
    difference = _difference(here, there, "")
    if difference:
        raise SwapRefused(f"another architecture: config.json {difference}")
    code = [name for name in differing_files(own, wanted) if name.endswith(".py")]
    if code:
        raise SwapRefused(f"the model's own code differs: {code[0]}")
    _check_layout(own.layout, wanted, dtype)


def quantization(config: Mapping[str, Any]) -> str:
    """Name of the quantization that a config.json declares, at any depth; empty if there is none."""
    for key, value in config.items():
        if key in _QUANTIZED and value:
            return str(value.get("quant_method", key)) if isinstance(value, Mapping) else key
        if isinstance(value, Mapping) and (found := quantization(value)):
            return found
    return ""


def differing_files(own: Outline | None, wanted: Outline) -> list[str]:
    """Files beside the weights that are not the same on both sides, in order."""
    files = {} if own is None else own.files
    return [name for name in sorted({*files, *wanted.files}) if files.get(name) != wanted.files.get(name)]


def _files_of(directory: str) -> dict[str, str]:
    home = Path(directory)
    found = {path for pattern in (*_BESIDE_WEIGHTS, GENERATION) for path in home.glob(pattern) if path.is_file()}
    try:
        return {path.relative_to(home).as_posix(): sha256(path.read_bytes()).hexdigest() for path in sorted(found)}
    except OSError as error:
        raise SwapRefused(f"the files of {directory} cannot be read: {error}") from error


def _layout_of(directory: str) -> Layout:
    """From the headers of the safetensors files, which are all that is read of them."""
    try:
        files = weight_files(Path(directory))
        if not files:
            raise SwapRefused(f"{directory} has no *.safetensors files")
        return {tensor.name: (tensor.dtype, tensor.shape) for file in files for tensor in read_header(file)}
    except (OSError, UserError) as error:
        raise SwapRefused(f"the weights of {directory} cannot be read: {error}") from error


def _check_layout(own: Layout, wanted: Outline, dtype: str) -> None:
    """Without this a missing tensor would keep its old values, and a further one would be ignored, both in silence."""
    for name in sorted({*own, *wanted.layout}):
        if name not in wanted.layout:
            raise SwapRefused(f"the weights lack {name}")
        if name not in own:
            if name in wanted.ties:  # files leave it out
                continue
            raise SwapRefused(f"the weights have {name}, which the loaded checkpoint has not")
        (own_type, own_shape), (type_, shape) = own[name], wanted.layout[name]
        if shape != own_shape:
            raise SwapRefused(f"{name} has the shape {list(shape)}, not {list(own_shape)}")
        if dtype == "auto" and type_ != own_type:
            raise SwapRefused(f"{name} is {type_}, not {own_type}")


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
