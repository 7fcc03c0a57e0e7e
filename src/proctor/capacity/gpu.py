"""Whether a model fits its GPUs: weights, key-value cache and activations of one tensor-parallel rank.

weights / ranks + activations + context + cache  <=  gpu_memory_utilization x memory of the GPU
cache of a row = tokens x layers x 2 x key-value heads x head size x bytes / ranks
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proctor.capacity.engines import RowNeed
from proctor.capacity.figures import Check, Figure, Level
from proctor.capacity.model import Model
from proctor.capacity.overhead import GPU_CONTEXT_BYTES
from proctor.capacity.sequence import in_sequence
from proctor.spec import RunSpec
from proctor.spec.engine import LocalEngineBase, VllmEngineSpec

VLLM_UTILIZATION = 0.92
"""vLLM 0.32's default of ``gpu_memory_utilization``."""
VLLM_BATCHED_TOKENS = 8192
"""vLLM's default of ``max_num_batched_tokens`` for offline use (16,384 on GPUs of 70 GiB and more, except the A100)."""
_LARGE_GPU = 70 << 30
_SPARE = 1.25
_STEP = 256


@dataclass(frozen=True, slots=True)
class GpuFit:
    """How a model fits.

    Attributes:
        check: the comparison.
        figures: the numbers in it.
        at_full_length: rows of `max_model_len` tokens that the cache holds at a time.
        at_row_length: rows like the largest sampled one that it holds; None if their length is not known.
        ranks: tensor-parallel ranks.
        max_len: tokens that a row may have.
        enough_len: tokens that rows like the sampled ones need, with a quarter to spare; None if not known.
    """

    check: Check
    figures: tuple[Figure, ...]
    at_full_length: int
    at_row_length: int | None
    ranks: int
    max_len: int
    enough_len: int | None


def fit_gpu(spec: RunSpec, model: Model, need: RowNeed, gpu_memory: int | None, gpu_type: str | None = None) -> GpuFit:
    """Holds a model against the GPUs of one replica.

    Args:
        spec: the run, with an engine that loads a model.
        model: the model.
        need: what its largest row asks for.
        gpu_memory: bytes of one GPU; None if not known.
        gpu_type: name of the GPU.
    """
    engine = spec.engine
    assert isinstance(engine, LocalEngineBase)
    ranks = _ranks(engine)
    max_len = engine.max_model_len or model.longest
    batch, row_len = engine.batch_size, None if need.tokens is None else need.tokens + spec.sampling.max_tokens
    weights = model.weight_bytes / ranks
    tokens = _tokens_of_a_pass(engine, row_len or max_len, gpu_memory, gpu_type)
    activations = model.activation_bytes(tokens, batch, max(need.patches, 4 * tokens if need.patches else 0), ranks)
    token_bytes = model.kv_token_bytes * model.kv_split(ranks)
    share = share_of_gpu(engine)
    figures = [
        Figure("weights of a rank", weights, "B", f"{model.weight_bytes:,} B as {model.dtype} / {ranks}", "config"),
        Figure("key-value cache of a token", token_bytes, "B", _kv_formula(model, ranks), "config"),
        Figure("activations", activations, "B", f"{tokens:,} tokens in a pass; see docs/plan.md", "assumed"),
        Figure("CUDA context and graphs", GPU_CONTEXT_BYTES, "B", "an estimate", "assumed"),
    ]
    fixed = weights + activations + GPU_CONTEXT_BYTES
    if gpu_memory is None or not max_len:
        why = "engine.max_model_len not given, nor in config.json" if gpu_memory else "GPU memory not known"
        check = Check("gpu memory", "GPU", "unknown", fixed + max_len * token_bytes, gpu_memory, "B", why)
        return GpuFit(check, tuple(figures), 0, None, ranks, max_len, _enough(row_len))
    room = share * gpu_memory - fixed
    figures.append(
        Figure("room for the cache", room, "B", f"{share:g} x {gpu_memory / 1e9:.4g} GB - the above", "computed")
    )
    at_full = max(0, math.floor(room / max(1.0, max_len * token_bytes)))
    at_row = None if row_len is None else max(0, math.floor(room / max(1.0, row_len * token_bytes)))
    check = _too_few_gpus(engine, ranks) or _verdict(
        at_full, at_row, batch, fixed, max_len, token_bytes, share * gpu_memory
    )
    return GpuFit(check, tuple(figures), at_full, at_row, ranks, max_len, _enough(row_len))


def beside_checks(spec: RunSpec, fits: Sequence[GpuFit]) -> list[Check]:
    """Whether a second engine finds room on the GPUs of the first (``engine.reference: beside``). Where it does not, it
    ends, and its checkpoint is started anew in the first one: that costs a start, and no row."""
    engine = spec.engine
    if not isinstance(engine, LocalEngineBase) or not in_sequence(spec) or engine.reference != "beside":
        return []
    found = []
    for check in (fit.check for fit in fits):
        if check.unit != "B" or check.have is None or check.need is None:
            continue
        card = check.have / share_of_gpu(engine)
        need = 2 * (check.have if isinstance(engine, VllmEngineSpec) else check.need)  # vLLM takes all that it may
        if need > card:
            formula = f"two engines take 2 x {need / 2e9:.3g} GB > {card / 1e9:.3g} GB: the second one will not start"
            advice = "engine.reference: first"
            found.append(Check("gpu memory", "engine.reference", "tight", need, card, "B", formula, advice))
    return found


def _verdict(
    at_full: int, at_row: int | None, batch: int, fixed: float, max_len: int, token_bytes: float, limit: float
) -> Check:
    need = fixed + batch * max_len * token_bytes
    formula = (
        f"{fixed / 1e9:.3g} GB + {batch} rows x {max_len:,} tokens x {token_bytes:,.0f} B = {need / 1e9:.3g} GB "
        f"{'<=' if need <= limit else '>'} {limit / 1e9:.3g} GB"
    )
    if need <= limit:
        return Check("gpu memory", "GPU", "ok", need, limit, "B", formula)
    if at_full:
        rows = f"{at_full} of {batch} rows of full length fit at a time"
        if at_row is not None:
            rows += f", {at_row:,} like the largest sampled one"
        level: Level = "ok" if at_row is not None and at_row >= batch else "tight"
        return Check("gpu memory", "GPU", level, need, limit, "B", f"{formula}; {rows}", "a smaller max_model_len")
    formula += "; not even one row of full length fits"
    return Check(
        "gpu memory", "GPU", "fails", fixed + max_len * token_bytes, limit, "B", formula, "more GPUs a replica"
    )


def _too_few_gpus(engine: LocalEngineBase, ranks: int) -> Check | None:
    """Ray hides the GPUs of a node that an engine did not ask for."""
    have = engine.gpus_per_replica
    if ranks <= max(1.0, have):
        return None
    formula = f"engine.options.tensor_parallel_size {ranks} > engine.gpus_per_replica {have:g}"
    return Check("gpu memory", "GPU", "fails", ranks, have, "GPUs", formula, "set both to the same")


def _ranks(engine: LocalEngineBase) -> int:
    said = engine.options.get("tensor_parallel_size")
    return said if isinstance(said, int) and said > 0 else 1


def share_of_gpu(engine: LocalEngineBase) -> float:
    """Share of a card that the engine may fill; transformers takes what there is."""
    said: Any = engine.options.get("gpu_memory_utilization", VLLM_UTILIZATION)
    share = float(said) if isinstance(engine, VllmEngineSpec) and isinstance(said, int | float) else 1.0
    return min(share, engine.gpus_per_replica) if 0 < engine.gpus_per_replica < 1 else share


def _tokens_of_a_pass(engine: LocalEngineBase, row_len: int, gpu_memory: int | None, gpu_type: str | None) -> int:
    if not isinstance(engine, VllmEngineSpec):
        return engine.batch_size * row_len
    said = engine.options.get("max_num_batched_tokens")
    if isinstance(said, int) and said > 0:
        return said
    large = gpu_memory is not None and gpu_memory >= _LARGE_GPU and "A100" not in (gpu_type or "")
    return 2 * VLLM_BATCHED_TOKENS if large else VLLM_BATCHED_TOKENS


def _kv_formula(model: Model, ranks: int) -> str:
    split = "" if ranks == 1 else f" x {model.kv_split(ranks):.3g}"
    return f"{model.kv_layers} layers x {model.kv_values} values x {model.value_bytes} B{split}"


def _enough(row_len: int | None) -> int | None:
    return None if row_len is None else math.ceil(row_len * _SPARE / _STEP) * _STEP
