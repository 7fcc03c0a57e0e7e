"""Tiny models of other families, with fresh weights and the demo's tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from proctor.demo.tokenizer import CHAT_TEMPLATE, IMAGE_PAD, SPECIAL_TOKENS, VOCABULARY, build_tokenizer

_SIDE, _PATCH = 32, 16


def write_text_model(directory: Path, **changes: Any) -> Path:
    """A Llama, which takes no images."""
    build_tokenizer().save_pretrained(directory)
    LlamaForCausalLM(_llama(**changes)).save_pretrained(directory)
    return directory


def write_llava(directory: Path) -> Path:
    """A LLaVA: images of one fixed size, stacked over the batch, unlike Qwen's."""
    image_processor = CLIPImageProcessorPil(size={"shortest_edge": _SIDE}, crop_size={"height": _SIDE, "width": _SIDE})
    LlavaProcessor(
        image_processor,
        build_tokenizer(),
        patch_size=_PATCH,
        vision_feature_select_strategy="default",
        image_token=IMAGE_PAD,
        num_additional_image_tokens=1,
        chat_template=CHAT_TEMPLATE,
    ).save_pretrained(directory)
    vision = CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=_SIDE,
        patch_size=_PATCH,
        projection_dim=32,
    )
    image_id = SPECIAL_TOKENS.index(IMAGE_PAD)
    config = LlavaConfig(
        vision_config=vision, text_config=_llama(), image_token_index=image_id, vision_feature_layer=-2
    )
    LlavaForConditionalGeneration(config).save_pretrained(directory)
    return directory


def _llama(**changes: Any) -> LlamaConfig:
    own = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "pad_token_id": 0,
        "eos_token_id": 2,
    }
    return LlamaConfig(**own | changes)
