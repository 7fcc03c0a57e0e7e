"""Packed attention that a graph can hold: one operator, whatever the number of images.

Qwen's vision attention in transformers splits its rows by the lengths of the images, which it reads with ``tolist()``:
a graph breaks there, or is a new one for each number of images (measured: three breaks a block). With an attention
function of its own that takes the starts of the images as a tensor, as those of flash attention do, transformers leaves
the splitting to that function. Here it is an operator that the compiler does not look into: inside, each image is
attended to by PyTorch's ``scaled_dot_product_attention`` just as before, so the results are the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import Any

import torch
from transformers import AttentionInterface

NAME = "proctor_flash_in_sdpa"
"""transformers hands the starts to every function with "flash" in its name."""
REPLACED = "sdpa"
_ORIGINAL = "_before_packing"


@torch.library.custom_op("proctor::packed_attention", mutates_args=())
def packed_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, starts: torch.Tensor, scale: float | None
) -> torch.Tensor:
    """Attends inside each sequence.

    Args:
        query, key, value: (1, heads, rows, width).
        starts: (sequences + 1,), the first row of each sequence and the number of rows.
        scale: of the products; None is one over the root of the width.

    Returns:
        (1, rows, heads, width), contiguous.
    """
    lengths = (starts[1:] - starts[:-1]).tolist()
    split = (tensor.split(lengths, dim=2) for tensor in (query, key, value))
    attend = torch.nn.functional.scaled_dot_product_attention
    return torch.cat([attend(*part, scale=scale).transpose(1, 2) for part in zip(*split, strict=True)], dim=1)


@packed_attention.register_fake
def _shape(query: torch.Tensor, _: torch.Tensor, value: torch.Tensor, *__: Any) -> torch.Tensor:
    batch, heads, rows, _width = query.shape
    return query.new_empty(batch, rows, heads, value.shape[-1])


def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers calls; see `proctor::packed_attention`."""
    if cu_seq_lens_q is None or attention_mask is not None:
        raise NotImplementedError(f"{type(module).__name__} is no packed attention without a mask")
    return packed_attention(query, key, value, cu_seq_lens_q, scaling), None


AttentionInterface.register(NAME, _attend)


def pack(model: torch.nn.Module, modules: Iterable[torch.nn.Module]) -> None:
    """Has the packed attentions inside `modules` use the operator, where they used PyTorch's function.

    The configuration of the model stays as it is, since another model may be made from it: those of its modules that
    share the attentions' own (the encoder too, for it counts the longest image) get a copy.
    """
    inside = [inner for module in modules for inner in module.modules()]
    for config in {id(module.config): module.config for module in inside if _is_packed(module)}.values():
        packed = copy(config)
        packed._attn_implementation = NAME
        setattr(packed, _ORIGINAL, config)
        for module in _sharing(model, config):
            module.config = packed


def unpack(model: torch.nn.Module) -> None:
    """Undoes `pack`."""
    for module in model.modules():
        original = getattr(getattr(module, "config", None), _ORIGINAL, None)
        if original is not None:
            module.config = original


def _sharing(model: torch.nn.Module, config: Any) -> list[Any]:
    return [module for module in model.modules() if getattr(module, "config", None) is config]


def _is_packed(module: Any) -> bool:
    """Whether it is an attention that splits its rows by `cu_seqlens` and hands them to PyTorch's function."""
    code = type(module).forward.__code__
    takes = code.co_varnames[: code.co_argcount]
    own = getattr(module, "config", None)
    return (
        "cu_seqlens" in takes
        and hasattr(module, "scaling")
        and getattr(module, "num_key_value_groups", 1) == 1
        and getattr(own, "_attn_implementation", None) == REPLACED
    )
