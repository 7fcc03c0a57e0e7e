"""TensorRT-LLM's generated kernels, also shipped by FlashInfer: attention (``fmhaSm...``), batched GEMM (``bmm_...``).

Words are those of TensorRT-LLM's ``trtllmGenKernels`` (``fmhaKernels.h``, ``BatchedGemmOptions.h``); a word that is not
in the lists below is shown and not explained.
"""

from __future__ import annotations

import re

from proctor.trace.names.decoded import Launch, Reading
from proctor.trace.names.grammars.nvjet import capability

_SOURCE = "TensorRT-LLM cpp/tensorrt_llm/kernels/trtllmGenKernels"
_TYPES = {
    "E4m3": "fp8 e4m3", "E2m1": "fp4 e2m1", "Bfloat16": "bf16", "Fp16": "fp16", "Fp32": "fp32",
    "MxE4m3": "fp8 e4m3 with block scales", "MxE2m1": "fp4 e2m1 with block scales", "E5m2": "fp8 e5m2",
}  # fmt: skip
_FMHA = re.compile(r"fmhaSm(\d{2,3})([af]?)Kernel_(\w+)")
_FMHA_WORDS: list[tuple[str, str, str]] = [
    (r"Qkv(E4m3|E2m1|Bfloat16|Fp16)", "Q, K and V", "{}"),
    (r"Q(E4m3|Bfloat16|Fp16)(?=Kv)", "Q", "{}"),
    (r"Kv(E4m3|E2m1|Bfloat16|Fp16)", "K and V", "{}"),
    (r"O(E4m3|E2m1|Bfloat16|Fp16)", "result", "{}"),
    (r"HQk(\d+)", "head dimension of Q and K", "{} elements"),
    (r"HV(\d+)", "head dimension of V", "{} elements"),
    (r"H(\d+)", "head dimension", "{} elements"),
    (r"(PagedKv|SeparateQkv|PackedQkv|ContiguousKv)", "layout", "{}"),
    (r"(SlidingOrChunkedCausal|Causal|Dense|Custom)", "mask", "{}"),
    (r"P(\d+)(?=VarSeq|Q\d|Multi|$)", "page", "{} tokens a page of the cache"),
    (r"(VarSeq)", "sequences", "of different lengths in one batch"),
    (r"Q(\d+)", "tile of queries", "{} queries"),
    (r"Kv(\d+)", "tile of keys", "{} keys"),
    (r"(Persistent|Static)", "scheduler", "{}"),
    (r"(Context|ForGen|Generation)", "phase", "{}"),
]
_PHASES = {"Context": "prefill", "ForGen": "decode", "Generation": "decode"}


def read(name: str, _: Launch) -> Reading | None:
    """Reads TensorRT-LLM's generated kernels; None if it is none."""
    match = _FMHA.fullmatch(name[:1_000])
    if match is not None:
        return _attention(*match.groups())
    return _gemm(name[:1_000]) if name.startswith("bmm_") else None


def _attention(digits: str, variant: str, rest: str) -> Reading:
    reading = Reading(family="TensorRT-LLM attention", source=_SOURCE)
    _architecture(reading, f"sm{digits}", variant)
    at = 0
    unknown = ""
    while at < len(rest):
        for pattern, label, meaning in _FMHA_WORDS:
            match = re.compile(pattern).match(rest, at)
            if match is not None and match.end() > at:
                unknown = _flush(reading, unknown)
                value = match[1]
                says = meaning.format(_TYPES.get(value, _PHASES.get(value, value)))
                reading.add(label, match[0], says)
                at = match.end()
                break
        else:
            unknown += rest[at]
            at += 1
    _flush(reading, unknown)
    found = {field.name: field for field in reading.fields}
    phase = found["phase"].meaning if "phase" in found else "unknown phase"
    head = next((f.meaning for f in reading.fields if f.name.startswith("head dimension")), "unknown")
    reading.summary = f"TensorRT-LLM generated attention, {phase}, head dimension {head}"
    return reading


def _flush(reading: Reading, unknown: str) -> str:
    if unknown:
        reading.unknown("word", unknown)
    return ""


def _architecture(reading: Reading, architecture: str, variant: str) -> None:
    kinds = {"a": ", this architecture only", "f": ", its family"}
    reading.add(
        "architecture", architecture + variant, f"compute capability {capability(architecture)}{kinds.get(variant, '')}"
    )


def _gemm(name: str) -> Reading | None:
    words = name.split("_")
    tile = next((word for word in words if re.fullmatch(r"t\d+x\d+x\d+(u\d+)?", word)), None)
    if tile is None:
        return None
    reading = Reading(family="TensorRT-LLM batched GEMM", source=_SOURCE)
    reading.add("library", "bmm", "generated batched GEMM, used for experts")
    types = [word for word in words[1:4] if _type_word(word)]
    for label, word in zip(("result", "operands", "accumulation"), types, strict=False):
        reading.add(label, word, _spoken(word))
    for word in words[1 + len(types) :]:
        _gemm_word(reading, word)
    m, n, k = re.findall(r"\d+", tile)[:3]
    reading.summary = f"TensorRT-LLM generated batched GEMM, tile {m} x {n} x {k}"
    return reading


def _type_word(word: str) -> bool:
    return re.fullmatch(r"(?:(?:Mx)?(?:E4m3|E2m1|E5m2)|Bfloat16|Fp16|Fp32){1,2}", word) is not None


def _spoken(word: str) -> str:
    return " and ".join(_TYPES[kind] for kind in re.findall(r"(?:Mx)?(?:E4m3|E2m1|E5m2)|Bfloat16|Fp16|Fp32", word))


_GEMM_WORDS: list[tuple[str, str, str]] = [
    (r"t\d+x\d+x\d+", "tile", "M x N x K of a block: {}"),
    (r"s\d+", "stages", "{} steps along K in flight"),
    (r"et\d+x\d+", "epilogue tile", "the result is written in tiles of {}"),
    (r"m\d+x\d+x\d+", "instruction", "matrix instruction {} (M x N x K)"),
    (r"(?:cga|c)\d+x\d+x\d+", "cluster", "cluster of {} blocks"),
    (r"transOut", "transOut", "the result is written transposed"),
    (r"swiGlu|siTuGlu", "activation", "fused activation"),
    (r"[NT]{2}", "layouts", "of A and B: T transposed, N not"),
]


def _gemm_word(reading: Reading, word: str) -> None:
    if match := re.fullmatch(r"(t\d+x\d+x\d+)u(\d+)", word):
        _gemm_word(reading, match[1])
        reading.unknown("u", f"u{match[2]}")
        return
    if match := re.fullmatch(r"(sm\d{2,3})([af]?)", word):
        _architecture(reading, match[1], match[2])
        return
    for pattern, label, meaning in _GEMM_WORDS:
        if re.fullmatch(pattern, word):
            reading.add(label, word, meaning.format(" x ".join(re.findall(r"\d+", word))))
            return
    if word:
        reading.unknown("word", word)
