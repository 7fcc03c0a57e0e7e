"""What rules ask of a kernel's name: the library that made it, its tile and the type of its operands."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from proctor.trace.names import decode, line_up

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
_OPERANDS = re.compile(r"operands? (\w+)")


class Traits(NamedTuple):
    """What a name says; an empty string is what it does not say."""

    library: str = ""
    tile: str = ""
    """``192x192``, with K and stages where the name has them: ``192x192 64x4``."""
    operands: str = ""
    """``bf16``, ``fp32`` …"""


@lru_cache(maxsize=4096)
def traits(name: str) -> Traits:
    """Reads the normal form of a kernel's name."""
    decoded = decode(name)
    tile = " ".join(f.value for f in decoded.fields if f.name in ("tile", "K and stages") and f.known)
    found = (_OPERANDS.search(f.meaning) for f in decoded.fields if f.known)
    operands = next((match[1] for match in found if match), "")
    return Traits(_library(name), tile, operands)


def _library(name: str) -> str:
    if _TRITON.search(name):
        return "Triton"
    rule = line_up().place(name).rule
    return next((library for pattern, library in _LIBRARIES if pattern.search(rule)), rule)
