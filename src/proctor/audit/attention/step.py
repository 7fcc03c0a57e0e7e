"""What the gate of cascade attention looks at, and what it answers."""

from __future__ import annotations

from typing import Literal

import msgspec

from proctor.audit.attention.prefix import CommonPrefix
from proctor.rows import UserError

MOST_REQUESTS = 4096

Outcome = Literal["passes", "splits", "does not split", "unknown", "not asked"]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the engine.

    Attributes:
        shared: tokens that all requests of the step share.
        query_lens: tokens that each request computes in this step; 1 for a request that decodes.
        query_heads, kv_heads: of one GPU; with tensor parallelism over 2 GPUs half of the model's.
        sms: streaming multiprocessors of the GPU.
        block_size, unrelated, computed: see `common_prefix`.
        dcp: GPUs that share a context (decode context parallelism).
        prefix_caching: without it no blocks are common.
        disabled: `disable_cascade_attn`; None: the default of the release.
        batch_invariant: `VLLM_BATCH_INVARIANT`, which disables it.
        version: of vLLM.
    """

    shared: int
    query_lens: tuple[int, ...]
    query_heads: int
    kv_heads: int
    sms: int
    block_size: int = 16
    unrelated: int = 0
    computed: int | None = None
    alibi: bool = False
    sliding_window: bool = False
    local_attention: bool = False
    dcp: int = 1
    prefix_caching: bool = True
    disabled: bool | None = None
    batch_invariant: bool = False
    version: str = "0.16.0"

    @property
    def requests(self) -> int:
        """How many requests the step has."""
        return len(self.query_lens)

    @property
    def group(self) -> int:
        """Query heads for each key-value head."""
        return self.query_heads // self.kv_heads

    def decoding(self, requests: int) -> Step:
        """The same step with so many requests that decode one token each."""
        return msgspec.structs.replace(self, query_lens=(1,) * requests)


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost model; its unit of time is one tile of keys.

    Attributes:
        tiles: tiles of 128 keys in the prefix.
        cascade_blocks: thread blocks of a split; each reads all tiles.
        cascade: time of a split: waves of blocks times tiles.
        decoding_blocks: thread blocks of flash-decoding; each reads one tile.
        decoding: time of flash-decoding: waves of blocks.
    """

    tiles: int
    cascade_blocks: int
    cascade: int
    decoding_blocks: int
    decoding: int


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """One condition.

    Attributes:
        name: what it looks at.
        rule: when it decides.
        here: what it found.
        outcome: ``splits`` and ``does not split`` decide; ``unknown`` where it depends on a release that was not read.
    """

    name: str
    rule: str
    here: str
    outcome: Outcome = "not asked"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Whether attention was split at the prefix, and what decided.

    Attributes:
        cascade: None where it would if the release had it on, and that is unknown.
        decided_by: name of the gate.
        prefix: how the prefix that the gates saw came about.
        gates: all of them, in order.
        cost: of the cost model, whether it was asked or not.
    """

    cascade: bool | None
    decided_by: str
    prefix: CommonPrefix
    gates: tuple[Gate, ...]
    cost: Cost


def check(step: Step) -> None:
    """Looks at heads, multiprocessors and requests; `common_prefix` looks at the rest.

    Raises:
        UserError: what cannot be.
    """
    if step.kv_heads < 1 or step.query_heads < 1 or step.query_heads % step.kv_heads:
        raise UserError(
            f"{step.query_heads} query heads for {step.kv_heads} key-value heads",
            where="heads",
            fix="every key-value head serves the same number of query heads, at least one",
        )
    if step.sms < 1 or step.dcp < 1:
        raise UserError("multiprocessors and ranks are counted from 1", where="sms" if step.sms < 1 else "dcp")
    if not 1 <= step.requests <= MOST_REQUESTS or min(step.query_lens) < 1:
        raise UserError(
            "a step has requests, and each computes at least one token",
            where="query lengths",
            fix=f"1 to {MOST_REQUESTS} whole numbers from 1 on",
        )
