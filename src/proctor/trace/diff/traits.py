"""What rules ask of a kernel's name: the library that made it, its tile and the type of its operands."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from proctor.trace.names import Field, decode, line_up

CUBLAS = "cuBLAS"
_LIBRARIES = (
    (re.compile(r"nvjet|xmma|cublas|split-k-reduce"), CUBLAS),
    (re.compile(r"cutlass"), "CUTLASS"),
    (re.compile(r"triton|inductor"), "Triton"),
    (re.compile(r"flash-attention|pytorch-flash"), "FlashAttention"),
    (re.compile(r"flashinfer|batch-(?:prefill|decode)"), "FlashInfer"),
    (re.compile(r"trtllm"), "TensorRT-LLM"),
)
"""Libraries by the line-up's rule that placed a kernel; what is not here is its own library under the rule's name."""
_TRITON = re.compile(r"(?:^|::)(?:matmul_kernel|bmm_kernel|kernel_unified_attention|_fwd_kernel)")
_TYPE = r"(bf16|fp16|f16|half|fp32|f32|float|single|tf32|fp64|f64|double|e4m3|e5m2|e2m1|fp8|fp4|int8|s8|i8)"
_OPERANDS = re.compile(rf"operands(?:, accumulation and result| and accumulation)? {_TYPE}\b")
_NARROW = re.compile(r"bf16|f16|e4m3|e5m2|e2m1|s8|i8")
_SPELLINGS = {"f32": "fp32", "float": "fp32", "single": "fp32", "f16": "fp16", "half": "fp16", "f64": "fp64"}


class Traits(NamedTuple):
    """What a name says; an empty string is what it does not say."""

    library: str = ""
    tile: str = ""
    """``192x192``, with K and stages where the name has them: ``192x192 64x4``."""
    operands: str = ""
    """``bf16``, ``fp32`` …; ``mixed`` where the name has types of 16 bits or less without saying of what."""


@lru_cache(maxsize=4096)
def traits(name: str) -> Traits:
    """Reads the normal form of a kernel's name."""
    decoded = decode(name)
    tile = " ".join(f.value for f in decoded.fields if f.name in ("tile", "K and stages") and f.known)
    operands = next(filter(None, map(_operands, decoded.fields)), "")
    return Traits(_library(name), tile, operands)


def _operands(field: Field) -> str:
    if field.name == "operands" and field.known:
        match = re.match(_TYPE, field.value)
    else:
        match = _OPERANDS.search(field.meaning)
    if match is not None:
        return _SPELLINGS.get(match[1], match[1])
    return "mixed" if field.name == "types" and _NARROW.search(field.value) else ""


def _library(name: str) -> str:
    if _TRITON.search(name):
        return "Triton"
    rule = line_up().place(name).rule
    return next((library for pattern, library in _LIBRARIES if pattern.search(rule)), rule)
