"""nvjet: cuBLAS's GEMMs for Hopper and later.

``nvjet_[smXX_]{types}_{M}x{N}_{K}x{stages}_{c1}x{c2}[_2cta]_{v|h}_bz[_coopA|_coopB][_splitK][_bias]_{TNx}``

The grammar has no public definition. Tile, stages, cluster and the first two trailing letters were found by comparing
names with launches: shared memory holds (M + N) * K * stages elements and a small rest, and the cluster of the launch
is c1 x c2. Types: nvFuser developers get ``hsh`` for half, single, half (NVIDIA/Fuser#3279, #3563).
"""

from __future__ import annotations

import re

from proctor.trace.names.decoded import Launch, Reading

SOURCE = "names compared with launches on H100 and B200; types: NVIDIA/Fuser#3279, #3563"
_TILES = re.compile(r"nvjet_(?:(sm\d+)_)?([a-z]+)_(\d+)x(\d+)_(\d+)x(\d+)_(\d+)x(\d+)((?:_\w+)?)", re.ASCII)
_TYPES = {"t": ("bf16", 2), "h": ("fp16", 2), "s": ("fp32", 4)}
_REST = 32_768


def read(name: str, launch: Launch) -> Reading | None:
    """Reads an nvjet name; None if it is none."""
    match = _TILES.fullmatch(name)
    if match is None:
        return None
    architecture, types, *numbers, rest = match.groups()
    m, n, k, stages, c1, c2 = (int(number) for number in numbers)
    words = [word for word in rest.split("_") if word]
    reading = Reading(family="nvjet", source=SOURCE)
    reading.add("library", "nvjet", "cuBLAS(Lt) GEMM for Hopper and later")
    if architecture:
        reading.add("architecture", architecture, f"compiled for compute capability {_capability(architecture)}")
    width = _types(reading, types)
    reading.add("tile", f"{m}x{n}", f"each block makes {m} x {n} of the result at a time (M x N)")
    reading.add("K and stages", f"{k}x{stages}", f"steps of {k} along K, {stages} of them in flight")
    reading.add("cluster", f"{c1}x{c2}", "no cluster" if c1 * c2 == 1 else f"blocks of a cluster: {c1 * c2}")
    two = "2cta" in words
    direction = next((word for word in words if word in ("v", "h")), "")
    _words(reading, words)
    _shared(reading, launch, m, n // 2 if two else n, k, stages, width)
    _cluster(reading, launch, (c2, c1) if direction == "h" else (c1, c2))
    split = ", split along K" if "splitK" in words else ""
    bias = ", with bias" if "bias" in words else ""
    reading.summary = f"cuBLAS GEMM, tile {m} x {n}, K in steps of {k}, {stages} stages{split}{bias}"
    return reading


def _capability(architecture: str) -> str:
    digits = architecture.removeprefix("sm")
    return f"{digits[:-1]}.{digits[-1]}"


def _types(reading: Reading, types: str) -> int | None:
    """Adds the field of the types; returns bytes of an operand's element, None if unknown."""
    names = [_TYPES.get(letter, (f"unknown ({letter})", 0))[0] for letter in types]
    if len(types) == 3:
        meaning = f"operands {names[0]}, accumulation {names[1]}, result {names[2]}"
        if all(letter in _TYPES for letter in types):
            reading.add("types", types, meaning, "t = bf16, s = fp32, h = fp16")
        else:
            reading.unknown("types", types, meaning)
    else:
        reading.unknown("types", types)
    return _TYPES[types[0]][1] if types[0] in _TYPES else None


def _words(reading: Reading, words: list[str]) -> None:
    """Adds what follows the cluster."""
    for position, word in enumerate(words):
        last = position == len(words) - 1
        if word == "2cta":
            reading.add("2cta", word, "two blocks share a tile: each holds half of N")
        elif word in ("v", "h"):
            reading.add(
                "orientation",
                word,
                "order in which tiles are visited, or the orientation of the cluster"
                + ("; the cluster's axes are swapped" if word == "h" else ""),
                "inferred from launches, not stated",
            )
        elif word == "splitK":
            reading.add("splitK", word, "split along K: partial products are added by a splitKreduce kernel")
        elif word == "bias":
            reading.add("bias", word, "a bias is added in the same kernel")
        elif last and re.fullmatch(r"[NT]{2}[A-Z]", word):
            _layout(reading, word)
        else:
            reading.unknown(word, word)


def _layout(reading: Reading, word: str) -> None:
    spoken = {"N": "not transposed", "T": "transposed"}
    reading.add("transposes", word[:2], f"A {spoken[word[0]]}, B {spoken[word[1]]}")
    reading.unknown("third letter", word[2:])


def _shared(reading: Reading, launch: Launch, m: int, n: int, k: int, stages: int, width: int | None) -> None:
    have = launch.dynamic_shared
    if have is None or width is None:
        return
    need = (m + n) * k * stages * width
    formula = f"({m} + {n}) * {k} * {stages} * {width} B = {need:,} B"
    if 0 <= have - need <= _REST:
        reading.compare(
            True, f"tiles of A and B take {formula} of {have:,} B of dynamic shared memory; {have - need:,} B are left"
        )
    else:
        reading.compare(False, f"tiles of A and B would take {formula}, but the launch has {have:,} B of shared memory")


def _cluster(reading: Reading, launch: Launch, expected: tuple[int, int]) -> None:
    if launch.cluster is None:
        return
    x, y, _ = launch.cluster
    have = (max(x, 1), max(y, 1))
    reading.compare(
        have == expected,
        f"the launch's cluster is {x} x {y}; the name says {expected[0]} x {expected[1]}"
        + (" (axes swapped by h)" if expected[0] != expected[1] else "")
        if have != expected
        else f"the launch's cluster is {x} x {y}, as the name says",
    )
