"""Attention in tiles with an online softmax, as FlashAttention does it, and the merge of partial results.

Sums and the softmax are in float32 (float64 for float64), probabilities are rounded to the number format before they
weigh the values, and a result is rounded to it when it is stored. Sources: FlashAttention (arXiv 2205.14135 and
2307.08691); vLLM, csrc/attention/merge_attn_states.cu.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

TILE = 128
"""Keys in a tile."""


class Part(NamedTuple):
    """Attention over a range of keys.

    Attributes:
        out: (..., queries, dim) weighted values; 0 for a query that sees none of the keys.
        lse: (..., queries, 1) logarithm of the sum of exponentials; -inf for such a query.
    """

    out: torch.Tensor
    lse: torch.Tensor


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    sees: int | None = None,
    tile: int = TILE,
    store: torch.dtype | None = None,
) -> Part:
    """Attention of all queries over all keys, tile by tile.

    Args:
        query: (..., queries, dim).
        key, value: (..., keys, dim).
        sees: keys that the first query sees; each further one sees one more (a causal mask). None: all see all.
        tile: keys in a tile.
        store: number format of the result; None: that of `query`.
    """
    wide = wide_dtype(query.dtype)
    scaled, sight = query.to(wide), _sight(query, sees)
    top = torch.full((*query.shape[:-1], 1), -math.inf, dtype=wide, device=query.device)
    total, out = torch.zeros_like(top), torch.zeros_like(scaled)
    for start in range(0, key.shape[-2], tile):
        keys, values = (each[..., start : start + tile, :].to(wide) for each in (key, value))
        score = scaled @ keys.transpose(-1, -2) * query.shape[-1] ** -0.5
        if sight is not None:
            place = torch.arange(start, start + keys.shape[-2], device=query.device)
            score = score.masked_fill(place >= sight, -math.inf)
        higher = torch.maximum(top, score.amax(-1, keepdim=True))
        anchor = higher.masked_fill(higher == -math.inf, 0)  # nothing seen yet: exp(-inf - 0) is 0, -inf + inf is not
        rescale, weight = torch.exp(top - anchor), torch.exp(score - anchor)
        total = total * rescale + weight.sum(-1, keepdim=True)
        out = out * rescale + weight.to(query.dtype).to(wide) @ values
        top = higher
    out = out / total.masked_fill(total == 0, 1)
    return Part(out.to(store or query.dtype), top + torch.log(total))


def merge(parts: Sequence[Part], dtype: torch.dtype) -> torch.Tensor:
    """Attention over all the keys of `parts`, from their results alone.

    Each counts by its share of the sum of exponentials, ``exp(lse - max) / sum(exp(lse - max))``.

    Args:
        parts: of the same queries, over ranges of keys that have nothing in common.
        dtype: number format of the result.
    """
    top = torch.stack([part.lse for part in parts]).amax(0)
    weights = [torch.exp(part.lse - top) for part in parts]
    total = torch.stack(weights).sum(0)
    out = torch.zeros_like(parts[0].out, dtype=total.dtype)
    for part, weight in zip(parts, weights, strict=True):
        out = out + part.out.to(total.dtype) * (weight / total)
    return out.to(dtype)


def exact(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, sees: int | None = None) -> torch.Tensor:
    """The same attention in float64, in one piece: what the others are measured against.

    Args:
        query, key, value, sees: as in `attend`; the inputs count as they are, already rounded.
    """
    query, key, value = (each.double() for each in (query, key, value))
    score = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    sight = _sight(query, sees)
    if sight is not None:
        score = score.masked_fill(torch.arange(key.shape[-2], device=key.device) >= sight, -math.inf)
    return torch.softmax(score, -1) @ value


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """The number format of sums."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _sight(query: torch.Tensor, sees: int | None) -> torch.Tensor | None:
    """(queries, 1) how many keys each query sees."""
    if sees is None:
        return None
    return torch.arange(sees, sees + query.shape[-2], device=query.device)[:, None]
