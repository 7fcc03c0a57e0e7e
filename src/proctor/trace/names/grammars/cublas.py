"""cuBLAS and cuDNN kernels whose configuration is in a plain name.

``[smXX_]xmma_{gemm|fprop...}_{types}_{layouts}_tilesizeMxNxK[_stageS]_warp[group]sizeAxBxC_..._kernel__5x_cublas`` and
``{ampere|volta|...}_{type}_{s|h|d|i}{instruction}gemm_{type}_MxN_[slicedAxB]_..._[stages_KxS]_{nn|nt|tn|tt}``.

Neither has a public definition; tile, stages and warps are confirmed by shared memory and threads of real launches.
"""

from __future__ import annotations

import re

from proctor.trace.names.decoded import Launch, Reading
from proctor.trace.names.grammars import checks
from proctor.trace.names.grammars.nvjet import capability
from proctor.trace.names.templates import width_of

SOURCE = "names compared with launches on V100, A100 and H100"
_XMMA = re.compile(
    r"(?:(sm\d{2,3})_)?xmma_([a-z_]+?)_((?:[a-z]+\d+){1,3}(?:_(?:[a-z]+\d+){1,3})*)_([a-z]{2,6}(?:_[a-z])?)_tilesize(\w+)"
)
_GENERATIONS = ("maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper")
_ARCHITECTURE = re.compile(
    rf"(cudnn_\w+?_)?({'|'.join(_GENERATIONS)})_(?:((?:bf|fp|f|s|u|i)\d+)_)?([a-z])(\d*)(gemm|cudnn)_(\w+)"
)
_LETTERS = {"s": "fp32", "h": "fp16", "d": "fp64", "i": "int32", "c": "complex fp32", "z": "complex fp64"}
_LAYOUT = {"n": "not transposed", "t": "transposed"}


def read(name: str, launch: Launch) -> Reading | None:
    """Reads xmma and generation names; None if it is neither."""
    return _xmma(name, launch) or _architecture(name, launch) or _helper(name)


def _xmma(name: str, launch: Launch) -> Reading | None:
    match = _XMMA.fullmatch(name[:1_000])
    if match is None:
        return None
    architecture, operation, types, layouts, rest = match.groups()
    reading = Reading(family="xmma", source=SOURCE)
    reading.add("library", "xmma", "generated kernel of cuBLAS or cuDNN")
    if architecture:
        reading.add("architecture", architecture, f"compiled for compute capability {capability(architecture)}")
    reading.add("operation", operation, "matrix product" if operation == "gemm" else "convolution")
    kinds = set(re.findall(r"[a-z]+\d+(?:m\d)?", types))
    if len(kinds) == 1:
        reading.add("types", types, f"operands, accumulation and result {next(iter(kinds))}")
    else:
        reading.unknown("types", types, "which type belongs to which operand has no public definition")
    if re.fullmatch(r"[nt]{2}(_[nt])?", layouts):
        reading.add("layouts", layouts, f"A {_LAYOUT[layouts[0]]}, B {_LAYOUT[layouts[1]]}")
    else:
        reading.unknown("layouts", layouts)
    words = re.sub(r"split_k|segment_k_off", lambda match: match[0].replace("_", "-"), f"tilesize{rest}").split("_")
    numbers = {_label(word): word for word in words if word}
    tile = _numbers(numbers.get("tilesize", ""))
    for word in words:
        if word:
            _xmma_word(reading, launch, word)
    stages = _numbers(numbers.get("stage", ""))
    if len(tile) == 3 and stages and len(kinds) == 1:
        checks.tiles(reading, launch, (tile[0], tile[1], tile[2]), stages[0], width_of(next(iter(kinds))))
    split = ", split along K inside the kernel" if "split_k" in rest else ""
    reading.summary = f"cuBLAS {operation}, tile {' x '.join(map(str, tile)) or 'unknown'}{split}"
    return reading


def _label(word: str) -> str:
    return re.sub(r"\d[\dx]*$", "", word)


def _numbers(word: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d{1,9}", word)]


def _xmma_word(reading: Reading, launch: Launch, word: str) -> None:
    numbers = _numbers(word)
    label = _label(word)
    if label == "tilesize" and len(numbers) == 3:
        reading.add("tile", word, f"each block makes {numbers[0]} x {numbers[1]}, K in steps of {numbers[2]}")
    elif label == "stage" and numbers:
        reading.add("stages", word, f"{numbers[0]} steps along K in flight")
    elif label == "warpsize" and len(numbers) == 3:
        count = numbers[0] * numbers[1] * numbers[2]
        reading.add("warps", word, f"{count} warps, {' x '.join(map(str, numbers))} along M, N and K")
        checks.warps(reading, launch, count, word)
    elif label == "tensor" and len(numbers) == 3:
        reading.add("instruction", word, f"tensor cores, instruction {' x '.join(map(str, numbers))} (M x N x K)")
    elif word == "ffma":
        reading.add("instruction", word, "fused multiply-add of fp32, no tensor cores")
    elif word == "split-k":
        reading.add("split", "split_k", "split along K inside the kernel, in a fixed sequence")
    elif word == "cublas":
        reading.add("shipped in", word, "cuBLAS")
    elif word == "cudnn":
        reading.add("shipped in", word, "cuDNN")
    elif word not in ("kernel", "execute"):
        reading.unknown(word.replace("-", "_"), word.replace("-", "_"))


def _architecture(name: str, launch: Launch) -> Reading | None:
    match = _ARCHITECTURE.fullmatch(name[:1_000])
    if match is None:
        return None
    prefix, generation, operand, letter, instruction, library, rest = match.groups()
    reading = Reading(family="cuDNN" if library == "cudnn" else "cuBLAS by generation", source=SOURCE)
    reading.add("generation", generation, f"written for NVIDIA's {generation.capitalize()} GPUs")
    if prefix:
        reading.unknown("prefix", prefix.rstrip("_"))
    if operand:
        reading.add("operands", operand, operand)
    if letter in _LETTERS:
        what = "accumulation" if instruction or operand else "operands and accumulation"
        reading.add("arithmetic", letter, f"{what} {_LETTERS[letter]}")
    else:
        reading.unknown("arithmetic", letter)
    if instruction:
        reading.add("instruction", instruction, f"tensor cores, instruction {shape_of(instruction)}")
    width = width_of(operand) if operand else {"s": 4, "h": 2, "d": 8}.get(letter)
    tile = _words(reading, rest, launch, width)
    kind = "convolution as a GEMM" if library == "cudnn" else "GEMM"
    reading.summary = f"{'cuDNN' if library == 'cudnn' else 'cuBLAS'} {kind} for {generation.capitalize()}{tile}"
    return reading


def shape_of(instruction: str) -> str:
    """``16816`` as ``16 x 8 x 16``; one that cannot be cut in one way stays as it is."""
    known = {"16816": "16 x 8 x 16", "1688": "16 x 8 x 8", "884": "8 x 8 x 4", "161616": "16 x 16 x 16",
             "16832": "16 x 8 x 32", "8816": "8 x 8 x 16", "8832": "8 x 8 x 32", "16864": "16 x 8 x 64"}  # fmt: skip
    return f"{known[instruction]} (M x N x K)" if instruction in known else instruction


def _words(reading: Reading, rest: str, launch: Launch, width: int | None) -> str:
    """Adds what follows the operation; returns the tile for the summary."""
    words = rest.split("_")
    tile: list[int] = []
    for position, word in enumerate(words):
        before = words[position - 1] if position else ""
        if re.fullmatch(r"\d+x\d+", word) and before == "stages":
            k, stages = _numbers(word)
            reading.add("stages", word, f"steps of {k} along K, {stages} of them in flight")
            if len(tile) == 2:
                checks.tiles(reading, launch, (tile[0], tile[1], k), stages, width)
        elif re.fullmatch(r"\d+x\d+", word) and not tile:
            tile = _numbers(word)
            reading.add("tile", word, f"each block makes {tile[0]} x {tile[1]} of the result")
        elif re.fullmatch(r"sliced\d+x\d+", word):
            reading.add("sliced", word, "K is sliced over the warps of a block and added up within it")
        elif word in ("nn", "nt", "tn", "tt"):
            reading.add("layouts", word, f"A {_LAYOUT[word[0]]}, B {_LAYOUT[word[1]]}")
        elif re.fullmatch(r"split[kK]", word):
            reading.add("split", word, "split along K")
        elif width_of(word) and not tile:
            reading.add("result", word, word)
        elif word != "stages":
            reading.unknown(word, word)
    return f", tile {tile[0]} x {tile[1]}" if tile else ""


def _helper(name: str) -> Reading | None:
    """Kernels beside the GEMMs: matrix by vector, the second step of a split, dot products."""
    function = re.match(r"[\w:]{1,200}", name)
    if function is None:
        return None
    known = [
        (r"(cublasLt::)?splitKreduce_kernel", "second step of a split along K: adds the partial products"),
        (r"gemv2([TN])_kernel\w*", "matrix by vector"),
        (r"gemvNSP_kernel\w*", "matrix by vector; NSP has no public definition"),
        (r"(internal::)?gemvx::kernel", "matrix by vector"),
        (r"gemmk1_kernel", "GEMM with K = 1"),
        (r"dot_kernel|reduce_1Block_kernel", "dot product; reduce_1Block_kernel is its second step"),
    ]
    for pattern, meaning in known:
        match = re.fullmatch(pattern, function[0])
        if match is None:
            continue
        reading = Reading(family="cuBLAS", source=SOURCE, summary=f"cuBLAS: {meaning}")
        reading.add("function", function[0], meaning)
        if function[0].startswith("gemv2") and match[1]:
            reading.add("matrix", match[1], f"the matrix is {_LAYOUT[match[1].lower()]}")
        if "<" in name:
            reading.unknown("template arguments", name[name.index("<") :][:2_000])
        return reading
    return None
