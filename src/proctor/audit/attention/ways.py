"""Ways to compute one and the same attention: in one pass, split at a prefix, split in n, in chunks of queries.

In each the last query sees all keys and every earlier one sees one key fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch

from proctor.audit.attention.kernel import TILE, attend, merge, wide_dtype

Way = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Of query (..., queries, dim), key and value (..., keys, dim): the result, (..., queries, dim)."""


def single(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """All keys in one pass."""
    return attend(query, key, value, sees=_sees(query, key)).out


def split_at(cuts: Sequence[int], *, wide_partials: bool = False) -> Way:
    """Ranges of keys, each by itself, then merged.

    Args:
        cuts: where a range ends and the next begins, ascending; cuts beyond the keys do nothing.
        wide_partials: store partial results in the format of sums, as FlashAttention's split-KV does
            (csrc/flash_attn/flash_api.cpp, out_accum), instead of rounding them to the format of the inputs first, as
            happens where two whole kernels are merged (vLLM, cascade and MLA's chunked context).
    """

    def way(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        edges = [0, *(cut for cut in cuts if 0 < cut < key.shape[-2]), key.shape[-2]]
        store, sees = wide_dtype(query.dtype) if wide_partials else query.dtype, _sees(query, key)
        parts = [
            attend(query, key[..., a:b, :], value[..., a:b, :], sees=None if b <= sees else sees - a, store=store)
            for a, b in pairwise(edges)
        ]
        return parts[0].out.to(query.dtype) if len(parts) == 1 else merge(parts, query.dtype)

    return way


def chunked(size: int, *, merged: bool = False) -> Way:
    """Queries in chunks, as in chunked prefill; each chunk sees the keys up to its own last query.

    Args:
        size: queries in a chunk; the last one may have fewer.
        merged: compute each chunk's context and its own keys apart and merge them (vLLM, MLA's chunked context);
            otherwise in one pass.
    """

    def way(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        context, done = key.shape[-2] - query.shape[-2], []
        for start in range(0, query.shape[-2], size):
            part = query[..., start : start + size, :]
            end = context + start + part.shape[-2]
            one = split_at([context + start]) if merged else single
            done.append(one(part, key[..., :end, :], value[..., :end, :]))
        return torch.cat(done, -2)

    return way


def even_cuts(keys: int, splits: int, tile: int = TILE) -> list[int]:
    """Where split-KV cuts: whole tiles, equally many in each split; few tiles make fewer splits than asked for."""
    tiles = -(-keys // tile)
    each = -(-tiles // splits) * tile
    return list(range(each, keys, each))


def _sees(query: torch.Tensor, key: torch.Tensor) -> int:
    """Keys that the first query sees."""
    return int(key.shape[-2] - query.shape[-2] + 1)
