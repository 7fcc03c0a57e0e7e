"""When vLLM <= 0.31 split attention at a shared prefix (cascade attention): its gates in order, with its cost model.

Source: vllm/v1/attention/backends/flash_attn.py (use_cascade_attention) of 0.16.0, for FlashAttention; the function is
absent since 0.32. This is a calculator for history: what old runs did, not what a release of today does.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from proctor.audit.attention.prefix import CommonPrefix, common_prefix
from proctor.audit.attention.step import Cost, Decision, Gate, Outcome, Step, check
from proctor.audit.attention.versions import cascade_default

TILE = 128
"""Queries, and keys, of a tile in the cost model; the kernel itself might use others."""
SEARCHED = 1024
"""Requests up to which a switch is looked for."""
LEAST_PREFIX = 256
LEAST_REQUESTS = 8
_NO: Outcome = "does not split"
_YES: Outcome = "splits"


def cascade_gate(step: Step) -> Decision:
    """Asks the gates in the order of the source until one decides.

    Raises:
        UserError: a step that cannot be.
    """
    check(step)
    prefix = common_prefix(
        step.shared if step.prefix_caching else 0,
        block_size=step.block_size,
        unrelated=step.unrelated,
        computed=step.computed,
    )
    cost = cost_model(step, prefix.length)
    gates: list[Gate] = []
    decided: Gate | None = None
    for gate in _gates(step, prefix, cost):
        gates.append(gate if decided is None else msgspec.structs.replace(gate, outcome="not asked"))
        if decided is None and gate.outcome in (_YES, _NO):
            decided = gate
    assert decided is not None, "the cost model always decides"
    unknown = decided.outcome == _YES and any(gate.outcome == "unknown" for gate in gates)
    cascade = None if unknown else decided.outcome == _YES
    return Decision(cascade=cascade, decided_by=decided.name, prefix=prefix, gates=tuple(gates), cost=cost)


def cost_model(step: Step, prefix: int) -> Cost:
    """What the source expects of a split and of flash-decoding, for requests that decode.

    Args:
        step: heads, multiprocessors and the number of requests count.
        prefix: tokens.
    """
    tiles = _ceil(prefix, TILE)
    cascade_blocks = step.query_heads * _ceil(step.requests, TILE)
    decoding_blocks = step.requests * step.kv_heads * _ceil(step.group, TILE) * tiles
    return Cost(
        tiles=tiles,
        cascade_blocks=cascade_blocks,
        cascade=_ceil(cascade_blocks, step.sms) * tiles,
        decoding_blocks=decoding_blocks,
        decoding=_ceil(decoding_blocks, step.sms),
    )


def first_activation(step: Step, most: int = SEARCHED) -> int | None:
    """The least number of decoding requests at which attention was split; None where it was at none up to `most`.

    Args:
        step: its own requests do not matter.
        most: where to stop.
    """
    return next((n for n in range(1, most + 1) if cascade_gate(step.decoding(n)).cascade is not False), None)


def _ceil(number: int, by: int) -> int:
    return -(-number // by)


def _gates(step: Step, prefix: CommonPrefix, cost: Cost) -> Iterator[Gate]:
    yield _release(step)
    yield _setting(step)
    yield Gate(
        name="common blocks",
        rule="no KV block that every request with a KV cache holds: no split",
        here="prefix caching is off" if not step.prefix_caching else f"{prefix.blocks} blocks of {step.block_size}",
        outcome=_NO if prefix.blocks == 0 else "passes",
    )
    yield Gate(
        name="prefix length",
        rule=f"under {LEAST_PREFIX} tokens: no split",
        here=f"{prefix.length} tokens",
        outcome=_NO if prefix.length < LEAST_PREFIX else "passes",
    )
    yield _variant(step)
    yield Gate(
        name="requests",
        rule=f"under {LEAST_REQUESTS}: no split",
        here=str(step.requests),
        outcome=_NO if step.requests < LEAST_REQUESTS else "passes",
    )
    yield Gate(
        name="context parallelism",
        rule="a context over several GPUs: no split",
        here=f"{step.dcp} GPU" + "s" * (step.dcp > 1),
        outcome=_NO if step.dcp > 1 else "passes",
    )
    yield _alternative(step)
    yield Gate(
        name="cost model",
        rule="ceil(heads * ceil(n/128) / SMs) * tiles < ceil(n * KV heads * ceil(group/128) * tiles / SMs): split",
        here=f"split {cost.cascade}, flash-decoding {cost.decoding}, with {cost.tiles} tiles",
        outcome=_YES if cost.cascade < cost.decoding else _NO,
    )


def _release(step: Step) -> Gate:
    default = cascade_default(step.version)
    outcome: Outcome = "unknown" if "absent" in default.states else "passes"
    if default.states == ("absent",):
        outcome = _NO
    return Gate(name="release", rule="removed with 0.32: no split", here=default.why, outcome=outcome)


def _setting(step: Step) -> Gate:
    outcome: Outcome = "unknown"
    if step.batch_invariant:
        outcome, here = _NO, "batch-invariant mode disables it"
    elif step.disabled is not None:
        outcome, here = _NO if step.disabled else "passes", f"disable_cascade_attn={step.disabled}"
    else:
        default = cascade_default(step.version)
        here = default.why
        if "on" not in default.states:
            outcome = _NO
        elif default.states == ("on",):
            outcome = "passes"
    return Gate(
        name="setting", rule="disabled, by default or by batch-invariant mode: no split", here=here, outcome=outcome
    )


def _variant(step: Step) -> Gate:
    flags = {"ALiBi": step.alibi, "sliding window": step.sliding_window, "local attention": step.local_attention}
    set_ = [name for name, on in flags.items() if on]
    return Gate(
        name="attention variant",
        rule="ALiBi, sliding window or local attention: no split",
        here=", ".join(set_) or "none of them",
        outcome=_NO if set_ else "passes",
    )


def _alternative(step: Step) -> Gate:
    only_decoding = all(length == 1 for length in step.query_lens)
    kind = "all requests decode" if only_decoding else "some request computes several tokens"
    return Gate(
        name="flash-decoding",
        rule="not the alternative (a step that is not all decoding, or a KV head for every query head): split at once",
        here=f"{kind}, {step.group} query head{'s' * (step.group > 1)} to a KV head",
        outcome="passes" if only_decoding and step.group > 1 else _YES,
    )
