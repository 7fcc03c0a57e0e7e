"""Why an engine cannot be swapped, as far as its configuration says it before anything starts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from proctor.engines.base import EngineConfig
from proctor.engines.common_knobs import model_configuration
from proctor.engines.swap_check import quantization

_TRANSFORMERS: Mapping[str, Collection[Any]] = {"use_safetensors": (None, True), "variant": (None,)}
_VLLM: Mapping[str, Collection[Any]] = {
    "enable_lora": (None, False),
    "kv_transfer_config": (None,),
    "load_format": (None, "auto", "hf", "safetensors"),
    "quantization": (None,),
    "speculative_config": (None,),
    "distributed_executor_backend": (None, "mp", "uni"),
    "worker_extension_cls": (None, ""),
}
"""Options with the values that a swap works with; the others are their own cases: adapters and draft models that belong
to the old weights, caches outside of the engine, formats that cannot be read again, workers that Proctor is not in."""


def transformers_reason(config: EngineConfig) -> str:
    """Why the transformers engine cannot be swapped; empty if nothing is known against it."""
    return _option(config, _TRANSFORMERS) or _model(config)


def vllm_reason(config: EngineConfig) -> str:
    """Why the vLLM engine cannot be swapped, whatever its version; empty if nothing is known against it."""
    return _option(config, _VLLM) or _model(config)


def _option(config: EngineConfig, fine: Mapping[str, Collection[Any]]) -> str:
    for name, values in fine.items():
        if config.options.get(name) not in values:
            return f"no swap with the option {name}={config.options[name]!r}"
    return ""


def _model(config: EngineConfig) -> str:
    method = quantization(model_configuration(config.model))
    if method:
        return f"quantized weights ({method}) cannot be replaced in a running engine"
    directory = Path(config.model)
    if directory.is_dir() and not any(directory.glob("*.safetensors")):
        return "only *.safetensors files can be swapped in"
    return ""
