"""Kernels of serving engines: vLLM and FlashInfer.

Functions and positions of template arguments are those of vLLM's ``csrc`` and FlashInfer's headers. Where a list has
changed between versions, it is shown and not explained.
"""

from __future__ import annotations

import re

from proctor.trace.names.decoded import Launch, Reading
from proctor.trace.names.grammars import checks
from proctor.trace.names.normal import parts
from proctor.trace.names.templates import arguments, plain

_VLLM = {
    "reshape_and_cache_flash_kernel": "writes keys and values into the cache: no attention",
    "reshape_and_cache_kernel": "writes keys and values into the cache: no attention",
    "concat_and_cache_mla_kernel": "writes the latent cache of MLA",
    "copy_blocks_kernel": "copies blocks of the cache",
    "rms_norm_kernel": "RMS norm",
    "fused_add_rms_norm_kernel": "adds the residual, then RMS norm",
    "act_and_mul_kernel": "gated activation: activation of one half times the other",
    "activation_kernel": "activation",
    "rotary_embedding_kernel": "rotary position embedding, in place",
    "paged_attention_v1_kernel": "paged attention, one pass",
    "paged_attention_v2_kernel": "paged attention over partitions; a reduce kernel follows",
    "paged_attention_v2_reduce_kernel": "joins the partitions of paged attention",
    "merge_attn_states_kernel": "joins two partial attentions by log-sum-exp: attention was split",
    "cross_device_reduce_1stage": "all-reduce: every rank reads all ranks",
    "cross_device_reduce_2stage": "all-reduce: reduce-scatter, then all-gather",
    "scaled_fp8_quant_kernel": "cast to 8-bit floats by a given scale",
    "scaled_fp8_quant_kernel_strided": "cast to 8-bit floats by a given scale",
}
_PAGED = ["elements", "cache elements", "head size", "block size", "threads"]
_LABELS = {
    "reshape_and_cache_flash_kernel": ["elements", "cache elements", "cache type"],
    "reshape_and_cache_kernel": ["elements", "cache elements", "cache type"],
    "cross_device_reduce_1stage": ["elements", "GPUs"],
    "cross_device_reduce_2stage": ["elements", "GPUs"],
    "paged_attention_v1_kernel": _PAGED,
    "paged_attention_v2_kernel": _PAGED,
}
_TRITON = {
    "kernel_unified_attention_2d": "vLLM's Triton attention: prefill, or decode in one segment",
    "kernel_unified_attention_3d": "vLLM's Triton attention over segments of keys and values; reduce_segments follows",
    "reduce_segments": "joins the segments of kernel_unified_attention_3d",
    "reshape_and_cache_kernel_flash": "vLLM in Triton: writes keys and values into the cache, no attention",
    "merge_attn_states_kernel": "joins two partial attentions by log-sum-exp: attention was split",
    "fused_moe_kernel": "GEMM over experts in Triton",
}
_FLASHINFER = re.compile(r"(Batch|Single)(Prefill|Decode)With(Paged|Ragged)?KVCache\w*|(Fused\w+|\w*RMSNorm\w*|\w+)")


def read(name: str, launch: Launch) -> Reading | None:
    """Reads kernels of vLLM and FlashInfer; None if it is none."""
    function, inner = parts(name)
    own = function.rpartition("::")[2]
    if function.startswith("vllm::"):
        return _vllm(function, own, arguments(inner), launch)
    if function.startswith("flashinfer::"):
        return _flashinfer(function, own, arguments(inner))
    if own in _TRITON and not inner:
        reading = Reading(family="vLLM (Triton)", source="vLLM vllm/attention/ops and vllm/v1/attention")
        reading.add("function", own, _TRITON[own])
        reading.summary = _TRITON[own]
        return reading
    return None


def _vllm(function: str, own: str, values: list[str], launch: Launch) -> Reading:
    reading = Reading(family="vLLM", source="vLLM csrc", summary=f"vLLM: {_VLLM.get(own, own)}")
    if own in _VLLM:
        reading.add("function", function, _VLLM[own])
    else:
        reading.unknown("function", function)
    labels = _LABELS.get(own, [])
    for label, value in zip(labels, values, strict=False):
        if label == "cache type":
            kinds = {"0": "as the model", "1": "fp8 e4m3", "2": "fp8 e5m2"}
            number = re.search(r"(\d)$", value)
            reading.add(label, value, kinds.get(number[1] if number else "", value))
        else:
            reading.add(label, value, plain(value))
        if label == "threads" and value.isdigit():
            checks.threads(reading, launch, int(value), "the arguments")
    rest = values[len(labels) :]
    if rest and not labels and own in _VLLM:
        reading.add("elements", rest[0], plain(rest[0]))
        rest = rest[1:]
    if rest:
        reading.unknown("further arguments", ", ".join(rest)[:1_000])
    return reading


def _flashinfer(function: str, own: str, values: list[str]) -> Reading:
    reading = Reading(family="FlashInfer", source="FlashInfer headers")
    match = _FLASHINFER.fullmatch(own)
    if match is not None and match[1]:
        phase = {"Prefill": "prefill", "Decode": "decode"}[match[2]]
        cache = {"Paged": "paged", "Ragged": "ragged", None: "contiguous"}[match[3]]
        batch = "a batch" if match[1] == "Batch" else "one request"
        what = f"{phase} of {batch} over a {cache} cache; its plan may split keys and values"
        reading.add("function", function, what)
    elif "::norm::" in function:
        what = "adds the residual, then RMS norm" if own.startswith("FusedAdd") else "norm"
        reading.add("function", function, what)
        if len(values) == 2 and values[0].isdigit():
            reading.add("vector", values[0], f"{values[0]} elements a load")
            reading.add("elements", values[1], plain(values[1]))
            values = []
    else:
        what = own
        reading.add("function", function, "a kernel of FlashInfer")
    if values:
        reading.unknown("template arguments", ", ".join(values)[:1_000], "their list changes between versions")
    reading.summary = f"FlashInfer: {what}"
    return reading
