"""Which parts of which vision encoders are worth compiling apart, by the encoder's class in transformers.

The classes and their attributes are those of transformers 5.19. What a part's modules are called is relative to the
encoder, with ``*`` for the number in a list; `beside` it, anywhere in the model.

`dynamic` names the dimensions that differ from call to call, by argument of ``forward``. A packed encoder (Qwen's) gets
all patches of a batch in one row of rows; the others get a batch of images that all have the same number of patches.
Arguments that are not named (rotary tables, sequence starts) may differ in every dimension.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Dimensions = Mapping[str, tuple[int, ...]]

BLOCKS = "blocks"
"""The target that every encoder has: its repeated blocks."""


class Part(NamedTuple):
    """One target: its name, its modules, and which dimensions of its inputs differ from call to call."""

    name: str
    modules: str
    dynamic: Dimensions
    beside: bool = False


class Preset(NamedTuple):
    """What one family of encoders is made of.

    Attributes:
        family: as people call it.
        encoders: names of the classes.
        parts: in the order in which they run.
    """

    family: str
    encoders: tuple[str, ...]
    parts: tuple[Part, ...]


_ROWS = {"hidden_states": (0,)}
_MERGED = {"x": (0,)}
_IMAGES = {"pixel_values": (0,)}
_BATCH = {"hidden_states": (0,)}
_HEAD = Part("head", "head", {"hidden_state": (0,)})
_PROJECTOR = Part("projector", "multi_modal_projector", {"image_features": (0,)}, beside=True)

PRESETS = (
    Preset(
        "Qwen3-VL",
        ("Qwen3VLVisionModel", "Qwen3VLMoeVisionModel"),
        (
            Part("patch_embed", "patch_embed", _ROWS),
            Part(BLOCKS, "blocks.*", _ROWS),
            Part("deepstack_mergers", "deepstack_merger_list.*", _MERGED),
            Part("merger", "merger", _MERGED),
        ),
    ),
    Preset(
        "Qwen2.5-VL",
        (
            "Qwen2_5_VisionTransformerPretrainedModel",
            "Qwen2VisionTransformerPretrainedModel",
            "Qwen3_5VisionModel",
            "Qwen3_5MoeVisionModel",
        ),
        (
            Part("patch_embed", "patch_embed", _ROWS),
            Part(BLOCKS, "blocks.*", _ROWS),
            Part("merger", "merger", _MERGED),
        ),
    ),
    Preset(
        "InternVL",
        ("InternVLVisionModel",),
        (Part("embeddings", "embeddings", _IMAGES), Part(BLOCKS, "encoder.layer.*", _BATCH), _PROJECTOR),
    ),
    Preset(
        "SigLIP",
        ("SiglipVisionModel",),
        (Part("embeddings", "embeddings", _IMAGES), Part(BLOCKS, "encoder.layers.*", _BATCH), _HEAD, _PROJECTOR),
    ),
    Preset(  # its embeddings go through the images one by one: a graph for each number of them
        "SigLIP 2",
        ("Siglip2VisionModel",),
        (Part(BLOCKS, "encoder.layers.*", _BATCH), _HEAD, _PROJECTOR),
    ),
    Preset(
        "CLIP",
        ("CLIPVisionModel",),
        (Part("embeddings", "embeddings", _IMAGES), Part(BLOCKS, "encoder.layers.*", _BATCH), _PROJECTOR),
    ),
)
ATTRIBUTES = ("visual", "vision_tower", "vision_model", "vision_encoder", "image_encoder", "vision_backbone")
"""Where models of other families keep their vision encoder."""


def preset_of(encoder: str) -> Preset | None:
    """The preset for an encoder of this class name, if there is one."""
    return next((preset for preset in PRESETS if encoder in preset.encoders), None)
