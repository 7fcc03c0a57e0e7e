"""The tiny Qwen3-VL (1.66 million parameters): its configuration, fresh weights, and complete model directories.

A model directory follows the classic layout (config.json, model.safetensors, tokenizer and preprocessor files), so it
loads like any published model: with transformers' `from_pretrained`, with or without torchvision, and with vLLM.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import torch
from safetensors.torch import save_file
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from proctor.demo.tokenizer import MAX_TOKENS, SPECIAL_TOKENS, VOCABULARY, build_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

PATCH: Final = 16
MERGE: Final = 2
TEMPORAL_PATCH: Final = 2
TOKEN_ID: Final = {token: number for number, token in enumerate(SPECIAL_TOKENS)}
EOS_ID: Final = TOKEN_ID["<|im_end|>"]
PAD_ID: Final = TOKEN_ID["<|endoftext|>"]
IMAGE_ID: Final = TOKEN_ID["<|image_pad|>"]
WEIGHTS_FILE: Final = "model.safetensors"

_HIDDEN = 128
# About 1 / sqrt(width). With the library's default of 0.02, meant for wide models, every skill is learned later.
_INITIALIZER_RANGE = 0.06


def model_config() -> Qwen3VLConfig:
    """The architecture; attention heads of 32 are the smallest that vLLM's CPU attention accepts."""
    return Qwen3VLConfig(
        text_config=_text_config(),
        vision_config=_vision_config(),
        image_token_id=IMAGE_ID,
        video_token_id=TOKEN_ID["<|video_pad|>"],
        vision_start_token_id=TOKEN_ID["<|vision_start|>"],
        vision_end_token_id=TOKEN_ID["<|vision_end|>"],
        tie_word_embeddings=True,
        pad_token_id=PAD_ID,
        eos_token_id=EOS_ID,
        architectures=["Qwen3VLForConditionalGeneration"],
    )


def new_model(seed: int = 0) -> Qwen3VLForConditionalGeneration:
    """Fresh fp32 weights drawn from `seed`."""
    torch.manual_seed(seed)
    return Qwen3VLForConditionalGeneration(model_config())


def save_weights(model: Qwen3VLForConditionalGeneration, path: Path) -> None:
    """Write the weights as bf16 safetensors under the names `from_pretrained` expects; the tied head is left out."""
    tensors = {
        name: tensor.detach().to(torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, metadata={"format": "pt"})


def write_shared_files(out: Path) -> None:
    """Everything a model directory holds except the weights."""
    out.mkdir(parents=True, exist_ok=True)
    config = model_config()
    config.dtype = torch.bfloat16
    _write_json(out / "config.json", config.to_diff_dict())
    _write_json(
        out / "generation_config.json",
        {"do_sample": False, "eos_token_id": EOS_ID, "pad_token_id": PAD_ID},
    )
    _write_json(
        out / "preprocessor_config.json",
        {**_preprocessor_config(), "image_processor_type": "Qwen2VLImageProcessor"},
    )
    _write_json(
        out / "video_preprocessor_config.json",
        {**_preprocessor_config(), "video_processor_type": "Qwen3VLVideoProcessor"},
    )
    build_tokenizer().save_pretrained(out)


def _text_config() -> dict[str, Any]:
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": _HIDDEN,
        "initializer_range": _INITIALIZER_RANGE,
        "intermediate_size": 384,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": MAX_TOKENS,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "pad_token_id": PAD_ID,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [6, 5, 5],
            "mrope_interleaved": True,
        },
    }


def _vision_config() -> dict[str, Any]:
    return {
        "depth": 3,
        "hidden_size": 96,
        "initializer_range": _INITIALIZER_RANGE,
        "num_heads": 3,
        "intermediate_size": 256,
        "patch_size": PATCH,
        "temporal_patch_size": TEMPORAL_PATCH,
        "spatial_merge_size": MERGE,
        "out_hidden_size": _HIDDEN,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0, 1],
    }


def _preprocessor_config() -> dict[str, Any]:
    return {
        "processor_class": "Qwen3VLProcessor",
        # Areas in pixels. A 128 x 96 frame lies between them and has sides of whole merged patches: never resized.
        "size": {"shortest_edge": 1024, "longest_edge": 65536},
        "patch_size": PATCH,
        "temporal_patch_size": TEMPORAL_PATCH,
        "merge_size": MERGE,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }


def _write_json(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2, sort_keys=True) + "\n", encoding="utf-8")
