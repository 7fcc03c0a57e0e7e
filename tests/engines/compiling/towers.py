"""Vision encoders of transformers' own classes with a handful of weights, and inputs for them."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import torch

SMALL = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 3, "intermediate_size": 64}
PACKED = {"depth": 3, "hidden_size": 32, "num_heads": 2, "intermediate_size": 64, "out_hidden_size": 16}
GRID = {"num_position_embeddings": 64}


class Tower(NamedTuple):
    """One class: where it is, what it is made with, how its inputs look, and its targets with their modules' number."""

    module: str
    name: str
    config: str
    arguments: dict[str, Any]
    inputs: str
    targets: dict[str, int]


TOWERS = {
    "Qwen3-VL": Tower(
        "qwen3_vl",
        "Qwen3VLVisionModel",
        "Qwen3VLVisionConfig",
        {**PACKED, **GRID, "patch_size": 14, "deepstack_visual_indexes": [0, 1]},
        "packed",
        {"patch_embed": 1, "blocks": 3, "deepstack_mergers": 2, "merger": 1},
    ),
    "Qwen2.5-VL": Tower(
        "qwen2_5_vl",
        "Qwen2_5_VisionTransformerPretrainedModel",
        "Qwen2_5_VLVisionConfig",
        {**PACKED, "fullatt_block_indexes": [1]},
        "packed",
        {"patch_embed": 1, "blocks": 3, "merger": 1},
    ),
    "Qwen3.5": Tower(
        "qwen3_5",
        "Qwen3_5VisionModel",
        "Qwen3_5VisionConfig",
        {**PACKED, **GRID, "patch_size": 14},
        "packed",
        {"patch_embed": 1, "blocks": 3, "merger": 1},
    ),
    "InternVL": Tower(
        "internvl",
        "InternVLVisionModel",
        "InternVLVisionConfig",
        {**SMALL, "image_size": [56, 56], "patch_size": [14, 14]},
        "images",
        {"embeddings": 1, "blocks": 3},
    ),
    "SigLIP": Tower(
        "siglip",
        "SiglipVisionModel",
        "SiglipVisionConfig",
        {**SMALL, "image_size": 56, "patch_size": 14},
        "images",
        {"embeddings": 1, "blocks": 3, "head": 1},
    ),
    "SigLIP 2": Tower(
        "siglip2",
        "Siglip2VisionModel",
        "Siglip2VisionConfig",
        {**SMALL, "num_patches": 64},
        "padded",
        {"blocks": 3, "head": 1},
    ),
    "CLIP": Tower(
        "clip",
        "CLIPVisionModel",
        "CLIPVisionConfig",
        {**SMALL, "image_size": 56, "patch_size": 14},
        "images",
        {"embeddings": 1, "blocks": 3},
    ),
}


def tower(family: str, **changes: Any) -> Any:
    """The encoder of a family, always with the same weights."""
    own = TOWERS[family]
    home = f"transformers.models.{own.module}"
    config = getattr(import_module(f"{home}.configuration_{own.module}"), own.config)(**{**own.arguments, **changes})
    torch.manual_seed(0)
    with torch.inference_mode(mode=False):
        return getattr(import_module(f"{home}.modeling_{own.module}"), own.name)(config).eval()


def batch(family: str, images: int) -> dict[str, Any]:
    """A batch of `images` images for `tower(family)`, always the same."""
    generator = torch.Generator().manual_seed(images)
    kind = TOWERS[family].inputs
    if kind == "images":
        return {"pixel_values": torch.randn(images, 3, 56, 56, generator=generator)}
    if kind == "padded":
        sizes = [(8, 8), (4, 16), (2, 32)]
        return {
            "pixel_values": torch.randn(images, 64, 3 * 16 * 16, generator=generator),
            "pixel_attention_mask": torch.ones(images, 64, dtype=torch.int32),
            "spatial_shapes": torch.tensor([sizes[number % 3] for number in range(images)]),
        }
    grid = torch.tensor([[1, 4 + 2 * (number % 3), 8] for number in range(images)])
    rows = int(grid.prod(1).sum())
    return {"hidden_states": torch.randn(rows, 3 * 2 * 14 * 14, generator=generator), "grid_thw": grid}


def outputs(encoder: Any, inputs: dict[str, Any]) -> list[torch.Tensor]:
    """Every tensor that the encoder gives."""
    found = encoder(**inputs)
    flat = [part for value in found.values() for part in (value if isinstance(value, (list, tuple)) else [value])]
    return [part for part in flat if part is not None]
