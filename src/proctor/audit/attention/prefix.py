"""How long a prefix vLLM <= 0.31 took for common to all requests: fewer tokens than they share, often none.

Sources: vllm/v1/core/single_type_kv_cache_manager.py (get_num_common_prefix_blocks) and
vllm/v1/worker/gpu_model_runner.py (_compute_cascade_attn_prefix_len), both of 0.16.0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import msgspec

from proctor.rows import UserError


class CommonPrefix(msgspec.Struct, frozen=True, kw_only=True):
    """From what requests share to what the gate is asked about; all lengths in tokens.

    Attributes:
        shared: what the requests of the step share.
        blocks: blocks that every request with a KV cache holds, counted from the first.
        capped: those blocks' tokens, or the tokens that the least advanced request of the step has computed.
        length: the same, in whole blocks: what the gate sees.
        why: what took tokens away, in words; empty where nothing did.
    """

    shared: int
    blocks: int
    capped: int
    length: int
    why: tuple[str, ...] = ()


def common_blocks(tables: Sequence[Sequence[Hashable]]) -> int:
    """Leading blocks of the first request that as many requests refer to as there are.

    Args:
        tables: the ids of the KV blocks of every request that has any, running or not; the first is a running one.
    """
    references = Counter(block for table in tables for block in set(table))
    common = 0
    for block in tables[0] if tables else ():
        if references[block] != len(tables):
            break
        common += 1
    return common


def common_prefix(
    shared: int, *, block_size: int = 16, unrelated: int = 0, computed: int | None = None
) -> CommonPrefix:
    """The prefix that the gate is asked about, for a step of requests that share their first tokens.

    Args:
        shared: tokens that the requests share.
        block_size: tokens of a KV block.
        unrelated: further requests that have a KV cache and share nothing.
        computed: tokens that the least advanced request of the step has computed so far; None: all of `shared`.

    Raises:
        UserError: a count that cannot be.
    """
    _check(shared, block_size, unrelated, computed)
    blocks = 0 if unrelated else shared // block_size  # `common_blocks` of such requests
    capped = min(blocks * block_size, shared if computed is None else computed)
    length = capped // block_size * block_size
    return CommonPrefix(
        shared=shared,
        blocks=blocks,
        capped=capped,
        length=length,
        why=tuple(_losses(shared, block_size, unrelated, blocks, capped, length)),
    )


def _check(shared: int, block_size: int, unrelated: int, computed: int | None) -> None:
    if block_size < 1:
        raise UserError(f"a block of {block_size} tokens", where="block size", fix="1 or more")
    for name, count in (("shared tokens", shared), ("unrelated", unrelated)):
        if count < 0:
            raise UserError(f"{count} is no count", where=name, fix="0 or more")
    if computed is not None and computed < 0:
        raise UserError(f"{computed} is no count", where="computed tokens", fix="0 or more")


def _losses(shared: int, block_size: int, unrelated: int, blocks: int, capped: int, length: int) -> list[str]:
    if unrelated:
        return [f"{unrelated} other with a KV cache: no block is common to all, so the prefix is 0 for everyone"]
    losses = []
    if blocks * block_size < shared:
        losses.append(f"{shared} tokens are {blocks} whole blocks of {block_size}: {blocks * block_size} tokens")
    if capped < blocks * block_size:
        losses.append(f"the least advanced request has computed {capped} tokens")
    if length < capped:
        losses.append(f"{capped} tokens are {length} in whole blocks")
    return losses
