"""Model directories with the shapes of real ones and no weights: a safetensors header needs no data to be read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

QWEN3_VL_8B: dict[str, Any] = {
    "model_type": "qwen3_vl",
    "dtype": "bfloat16",
    "text_config": {
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 262144,
    },
    "vision_config": {"hidden_size": 1152, "intermediate_size": 4304, "patch_size": 16, "spatial_merge_size": 2},
}
"""The published configuration of Qwen3-VL-8B-Instruct, as far as a plan reads it."""
PARAMETERS_8B = 8_767_123_696


def model_directory(
    path: Path, config: Mapping[str, Any], tensors: Mapping[str, tuple[str, list[int]]], **files: Mapping[str, Any]
) -> Path:
    """Writes a configuration and the header of a weight file; `files` are further JSON files by their stems."""
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config))
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    sizes = {"F32": 4, "BF16": 2, "F16": 2, "U8": 1, "I8": 1, "F8_E4M3": 1, "I64": 8}
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape) in tensors.items():
        size = sizes[dtype]
        for length in shape:
            size *= length
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    (path / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    return path
