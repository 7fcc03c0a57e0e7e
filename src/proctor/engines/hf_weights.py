"""Weights of a transformers model: read at the start, and taken over in place of others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, GenerationConfig

from proctor.engines.base import SwapRefused
from proctor.rows import UserError

_PLACING = ("device_map", "max_memory", "offload_folder")


def load_model(directory: Path, dtype: str, device: str, options: Mapping[str, Any], *, images: bool) -> Any:
    """The model in `directory`.

    Args:
        directory: a model directory.
        dtype: as in `EngineConfig`.
        device: as in `EngineConfig`; without effect if `options` place the model.
        options: for `from_pretrained`.
        images: whether it is of the image-text-to-text kind.

    Raises:
        UserError: the device is not there.
    """
    kind = AutoModelForImageTextToText if images else AutoModelForCausalLM
    model = kind.from_pretrained(directory, dtype=dtype, **options).eval()
    return model if "device_map" in options else model.to(_device(device))


def check_replaceable(model: Any) -> None:
    """Weights can be put in the place of this model's.

    Raises:
        SwapRefused: some of them are not in memory, or it is quantized.
    """
    if getattr(model, "hf_quantizer", None) is not None:
        raise SwapRefused("quantized weights cannot be replaced in a running engine")
    if any(tensor.is_meta for tensor in model.parameters()):
        raise SwapRefused("some of the model's weights are not in memory (device_map)")


def adopted(model: Any, directory: Path, tensors: Mapping[str, Any]) -> Any:
    """A model of the class and configuration of `model` that has `tensors` for weights, on the CPU.

    transformers' own loader renames and converts them and ties what is tied. A tensor that is of the right format
    already is taken as it is, without a copy.

    Args:
        model: a loaded model; stays as it is.
        directory: the tensors' checkpoint, for its generation_config.json.
        tensors: by the names that its files have.

    Raises:
        SwapRefused: a weight would not be filled.
    """
    config = model.config
    made, about = type(model).from_pretrained(
        None, config=config, state_dict=dict(tensors), dtype=config.dtype, output_loading_info=True
    )
    if missing := sorted(about["missing_keys"]):
        raise SwapRefused(f"the weights lack {missing[0]} ({len(missing)} in all)")
    made.generation_config = _generation(directory)
    return made.eval()


def successor(
    model: Any,
    directory: Path,
    dtype: str,
    options: Mapping[str, Any],
    tensors: Mapping[str, Any] | None,
    *,
    images: bool,
) -> Any:
    """The model of `directory` in the place of `model`.

    On a CPU it is another object, and `model` stays as it is. Elsewhere the weights are copied into those that are
    there, since the device need not have room for two models.

    Args:
        model: what is loaded.
        directory: of the other checkpoint, of the same architecture.
        dtype: see `load_model`.
        options: see `load_model`.
        tensors: its weights; None: they are read from `directory`.
        images: see `load_model`.

    Raises:
        SwapRefused: nothing has changed.
    """
    check_replaceable(model)
    if tensors is not None:
        fresh = adopted(model, directory, tensors)
    else:
        plain = {name: value for name, value in options.items() if name not in _PLACING}
        fresh = load_model(directory, dtype, "cpu", plain, images=images)
    if all(tensor.device.type == "cpu" for tensor in model.parameters()):
        return fresh
    overwrite(model, fresh)
    model.generation_config = fresh.generation_config
    return model


@torch.no_grad()
def overwrite(model: Any, fresh: Any) -> None:
    """Copies all weights and buffers of `fresh` into those of `model`, which is of the same architecture.

    Tied weights are one tensor in `model` and stay one: they are written once for each of their names, with the same.
    """
    for read in (_parameters, _buffers):
        sources = read(fresh)
        for name, tensor in read(model).items():
            tensor.copy_(sources[name])  # has ended when it returns: the source may be let go of


def _generation(directory: Path) -> GenerationConfig:
    """As `from_pretrained` finds it for a model that it reads itself."""
    if (directory / "generation_config.json").is_file():
        return GenerationConfig.from_pretrained(directory)
    return GenerationConfig.from_pretrained(directory, config_file_name="config.json", _from_model_config=True)


def _parameters(model: Any) -> dict[str, Any]:
    return dict(model.named_parameters(remove_duplicate=False))


def _buffers(model: Any) -> dict[str, Any]:
    return dict(model.named_buffers(remove_duplicate=False))


def _device(wanted: str) -> str:
    there = torch.cuda.is_available()
    if wanted == "cuda" and not there:
        raise UserError("this torch sees no GPU", where="engine.device", fix="set it to auto")
    if wanted == "auto":
        return "cuda" if there else "cpu"
    return wanted
