"""nvjet: cuBLAS's GEMMs for Hopper and later.

``nvjet_[smXX_]{types}_{M}x{N}_{K}x{stages}_{c1}x{c2}[_2cta]_{v|h}_bz[_coopA|_coopB][_splitK][_bias]_{TNx}``

The grammar has no public definition. Tile, stages, cluster and the first two trailing letters were found by comparing
names with launches: shared memory holds (M + N) * K * stages elements and a small rest, and the cluster of the launch
is c1 x c2. Types: nvFuser developers get ``hsh`` for half, single, half (NVIDIA/Fuser#3279, #3563).

Consumer Blackwell (sm120) has another form, ``nvjet_sm120_hsh_mma_{M}x{N}x{K}_{stages}_...``, of which only what
arithmetic confirms is read.
"""

from __future__ import annotations

import re

from proctor.trace.names.decoded import Launch, Reading
from proctor.trace.names.grammars import checks

SOURCE = "names compared with launches on H100 and B200; types: NVIDIA/Fuser#3279, #3563"
_TILES = re.compile(r"nvjet_(?:(sm\d{2,3})_)?([a-z]{1,8})_(\d+)x(\d+)_(\d+)x(\d+)_(\d+)x(\d+)((?:_\w+)?)", re.ASCII)
_MMA = re.compile(r"nvjet_(?:(sm\d{2,3})_)?([a-z]{1,8})_mma_(\d+)x(\d+)x(\d+)_(\d+)((?:_\w+)?)", re.ASCII)
_TYPES = {"t": ("bf16", 2), "h": ("fp16", 2), "s": ("fp32", 4)}


def read(name: str, launch: Launch) -> Reading | None:
    """Reads an nvjet name; None if it is none."""
    match = _TILES.fullmatch(name)
    if match is None:
        return _mma(name, launch)
    architecture, types, *numbers, rest = match.groups()
    m, n, k, stages, c1, c2 = (int(number) for number in numbers)
    words = [word for word in rest.split("_") if word]
    reading, width = _opening(architecture, types)
    reading.add("tile", f"{m}x{n}", f"each block makes {m} x {n} of the result at a time (M x N)")
    reading.add("K and stages", f"{k}x{stages}", f"steps of {k} along K, {stages} of them in flight")
    reading.add("cluster", f"{c1}x{c2}", "no cluster" if c1 * c2 == 1 else f"{c1 * c2} blocks a cluster")
    swapped = "h" in words
    for position, word in enumerate(words):
        _word(reading, word, last=position == len(words) - 1)
    halved = "N halved by 2cta" if "2cta" in words else ""
    checks.tiles(reading, launch, (m, n // 2 if halved else n, k), stages, width, halved)
    checks.cluster(reading, launch, (c2, c1) if swapped else (c1, c2), " (h swaps the axes)" if swapped else "")
    split = ", split along K" if "splitK" in words else ""
    bias = ", with bias" if "bias" in words else ""
    reading.summary = f"cuBLAS GEMM, tile {m} x {n}, K in steps of {k}, {stages} stages{split}{bias}"
    return reading


def _mma(name: str, launch: Launch) -> Reading | None:
    """The form of consumer Blackwell: what the launch does not confirm stays unknown."""
    match = _MMA.fullmatch(name)
    if match is None:
        return None
    architecture, types, *numbers, rest = match.groups()
    m, n, k, stages = (int(number) for number in numbers)
    reading, width = _opening(architecture, types)
    checks.tiles(reading, launch, (m, n, k), stages, width)
    if reading.evidence:
        reading.add("tile", f"{m}x{n}x{k}", f"M x N x K of a block: {m} x {n} x {k}", reading.evidence[0])
        reading.add("stages", stages, f"{stages} steps along K in flight", reading.evidence[0])
    else:
        reading.contradictions.clear()  # a reading that is only a guess is not contradicted
        reading.unknown("numbers", f"{m}x{n}x{k}_{stages}")
    for word in rest.split("_"):
        if word:
            reading.unknown(word, word)
    reading.summary = "cuBLAS GEMM of consumer Blackwell; its grammar is known in part"
    return reading


def _opening(architecture: str | None, types: str) -> tuple[Reading, int | None]:
    """A reading with library, architecture and types; and bytes of an operand's element, None if unknown."""
    reading = Reading(family="nvjet", source=SOURCE)
    reading.add("library", "nvjet", "cuBLAS(Lt) GEMM for Hopper and later")
    if architecture:
        reading.add("architecture", architecture, f"compiled for compute capability {capability(architecture)}")
    if len(types) == 3 and all(letter in _TYPES for letter in types):
        a, accumulator, result = (_TYPES[letter][0] for letter in types)
        meaning = f"operands {a}, accumulation {accumulator}, result {result}"
        reading.add("types", types, meaning, "t = bf16, s = fp32, h = fp16")
    else:
        reading.unknown("types", types)
    return reading, _TYPES[types[0]][1] if types[0] in _TYPES else None


def capability(architecture: str) -> str:
    """``sm90`` as ``9.0``."""
    digits = architecture.removeprefix("sm").removeprefix("_")
    return f"{digits[:-1]}.{digits[-1]}"


def _word(reading: Reading, word: str, *, last: bool) -> None:
    """Adds one of the words that follow the cluster."""
    if word == "2cta":
        reading.add("2cta", word, "two blocks work on one tile, each with half of N in its shared memory")
    elif word in ("v", "h"):
        swaps = "; the axes of the cluster are swapped" if word == "h" else ""
        reading.add(
            "orientation", word, f"order of the tiles or orientation{swaps}", "inferred from launches, not stated"
        )
    elif word == "splitK":
        reading.add("splitK", word, "split along K: a splitKreduce kernel adds the partial products")
    elif word == "bias":
        reading.add("bias", word, "a bias is added in the same kernel")
    elif last and re.fullmatch(r"[NT]{2}[A-Z]{1,2}", word):
        spoken = {"N": "not transposed", "T": "transposed"}
        reading.add("transposes", word[:2], f"A {spoken[word[0]]}, B {spoken[word[1]]}")
        reading.unknown("third letter", word[2:])
    else:
        reading.unknown(word, word)
