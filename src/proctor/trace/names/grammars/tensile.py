"""Tensile, AMD's GEMM generator (rocBLAS, hipBLASLt): ``Cijk_{A}_{B}_{types}_..._MT{M}x{N}x{K}_...``.

Source: ROCm's documentation of Tensile, "Kernel parameters" and "Nomenclature". Indices follow Einstein's convention:
``l`` is summed over, ``i`` and ``j`` are rows and columns of the result, ``k`` is the batch; the first is contiguous.
"""

from __future__ import annotations

import re

from proctor.trace.names.decoded import Launch, Reading
from proctor.trace.names.grammars import checks

_SOURCE = "ROCm documentation: Tensile, kernel parameters"
_NAME = re.compile(r"(?:Custom_)?Cijk_A([ijkl]{2,4})_B([ijkl]{2,4})_(\w+)")
_TYPES = {
    "H": "fp16", "B": "bf16", "S": "fp32", "D": "fp64", "I": "int32", "F8": "fp8", "B8": "bf8",
}  # fmt: skip
_OPTIONS = {
    "GSU": "GlobalSplitU: parts that the sum over K is split into among work-groups",
    "WGM": "WorkGroupMapping: the order in which work-groups compute the result",
    "PGR": "PrefetchGlobalRead",
    "PLR": "PrefetchLocalRead",
    "VW": "VectorWidth",
    "GRVW": "GlobalReadVectorWidth",
    "GRVWA": "GlobalReadVectorWidth of A",
    "GRVWB": "GlobalReadVectorWidth of B",
    "WS": "wavefront size",
}


def read(name: str, launch: Launch) -> Reading | None:
    """Reads Tensile kernels; None if it is none."""
    match = _NAME.fullmatch(name[:2_000])
    if match is None:
        return None
    a, b, rest = match.groups()
    words = rest.split("_")
    reading = Reading(family="Tensile", source=_SOURCE)
    reading.add(
        "A", f"A{a}", "transposed" if a.startswith("l") else "not transposed", f"A's contiguous index is {a[0]}"
    )
    reading.add(
        "B", f"B{b}", "not transposed" if b.startswith("l") else "transposed", f"B's contiguous index is {b[0]}"
    )
    _types(reading, words[0])
    others: list[str] = []
    tile = split = ""
    if group := re.search(r"_WG(\d+)_(\d+)_(\d+)(?=_|$)", rest):
        words = re.sub(r"_WG\d+_\d+_\d+(?=_|$)", "", rest, count=1).split("_")
        _work_group(reading, launch, list(group.groups()))
    for word in words[1:]:
        if re.fullmatch(r"MT\d+x\d+x\d+", word):
            tile = word[2:]
            m, n, k = tile.split("x")
            reading.add("macro tile", word, f"each work-group makes {m} x {n}, K in steps of {k}")
        elif re.fullmatch(r"MI\d+x\d+x\d+(x\d+)?", word):
            reading.add("matrix instruction", word, f"{word[2:].replace('x', ' x ')} (M x N x K, blocks)")
        elif (option := re.fullmatch(r"([A-Z]+)(n?\d+)", word)) and option[1] in _OPTIONS:
            reading.add(option[1], word, f"{_OPTIONS[option[1]]}: {option[2].replace('n', '-')}")
            split = option[2] if option[1] == "GSU" else split
        elif word:
            others.append(word)
    if others:
        reading.unknown("other options", "_".join(others))
    parts = f", sum split in {split}" if split not in ("", "0", "1") else ""
    reading.summary = f"AMD Tensile GEMM{f', tile {tile}' if tile else ''}{parts}"
    return reading


def _types(reading: Reading, word: str) -> None:
    letters = re.findall(r"F8|B8|[A-Z]", word)
    if len(letters) == 3 and all(letter in _TYPES for letter in letters):
        a, result, compute = (_TYPES[letter] for letter in letters)
        reading.add("types", word, f"operands {a}, result {result}, arithmetic {compute}")
    else:
        reading.unknown("types", word)


def _work_group(reading: Reading, launch: Launch, numbers: list[str]) -> None:
    if not all(number.isdigit() and len(number) < 6 for number in numbers):
        return
    x, y, z = (int(number) for number in numbers)
    reading.add("work-group", f"WG{x}_{y}_{z}", f"{x} x {y} threads, the sum split over {z} parts within the group")
    checks.threads(reading, launch, x * y * z, "WG")
