"""CUTLASS: names made by its generator, and kernels spelled as C++ templates.

Names: ``cutlass_[arch_]{class}_[type_]{s|h|d}{instruction}{operation}_..._{M}x{N}_{K}x{stages}_{layout}_align{n}``, by
``procedural_name`` of the CUTLASS library generator. Templates: positions as in CUTLASS's own headers,
``gemm/threadblock/mma_multistage.h``, ``gemm/kernel/gemm.h``, ``gemm/dispatch_policy.hpp``,
``gemm/collective/collective_mma_decl.hpp`` and ``gemm/kernel/gemm_universal_decl.h``.
"""

from __future__ import annotations

import re

from proctor.trace.names.decoded import Launch, Reading
from proctor.trace.names.grammars import checks
from proctor.trace.names.grammars.cublas import shape_of
from proctor.trace.names.grammars.nvjet import capability
from proctor.trace.names.templates import arguments, inside, integers, plain, width_of, yes_no

_NAMES = "CUTLASS library generator, procedural_name"
_HEADERS = "CUTLASS headers"
_NAME = re.compile(
    r"cutlass_(?:(\d{2,3})_)?(wmma_tensorop|tensorop|simt)_(\w+?)_(\d+)x(\d+)_(\d+)x(\d+)_([a-z]{2,5})(?:_align(\d+))?"
)
_CORE = re.compile(r"(?:(bf16|tf32|f16|f32|f64|s8|u8|e4m3|e5m2)_)?([a-z])(\d*)(gemm|fprop|dgrad|wgrad)(?:_(\w+))?")
_LETTERS = {"s": "fp32", "h": "fp16", "d": "fp64", "i": "int32", "c": "complex fp32", "z": "complex fp64"}
_WRAPPER = re.compile(r"((?:[\w]+::)?(?:Kernel2?|device_kernel))<")


def read(name: str, launch: Launch) -> Reading | None:
    """Reads CUTLASS kernels; None if it is none."""
    match = _WRAPPER.match(name)
    body = name[match.end() :] if match else name
    wrapper = match[1] if match else ""
    bare = re.match(r"cutlass_\w+", body)
    if bare is not None:
        return _generated(bare[0][:1_000], wrapper, launch)
    if not match:
        return None
    if inside(body, "GemmUniversal") is not None:
        return _universal(body, wrapper, launch)
    if "gemm::kernel::" in body:
        return _two(body, wrapper, launch)
    return None


def _wrapper(reading: Reading, wrapper: str) -> None:
    if wrapper:
        reading.add("wrapper", wrapper, "entry of every CUTLASS kernel of its generation; its argument tells which")


def _generated(name: str, wrapper: str, launch: Launch) -> Reading | None:
    match = _NAME.fullmatch(name)
    core = _CORE.fullmatch(match[3]) if match else None
    if match is None or core is None:
        return None
    architecture, class_, _, *numbers, layout, alignment = match.groups()
    m, n, k, stages = (int(number) for number in numbers)
    element, letter, instruction, operation, rest = core.groups()
    reading = Reading(family="CUTLASS 2", source=_NAMES)
    _wrapper(reading, wrapper)
    if architecture:
        reading.add("architecture", architecture, f"for compute capability {capability(architecture)} and later")
    classes = {"simt": "no tensor cores", "tensorop": "tensor cores", "wmma_tensorop": "tensor cores through WMMA"}
    reading.add("class", class_, classes[class_])
    if element:
        reading.add("operands", element, element)
    reading.add("accumulation", letter, _LETTERS.get(letter, letter))
    if instruction:
        reading.add("instruction", instruction, f"instruction {shape_of(instruction)}")
    reading.add("operation", operation, "matrix product" if operation == "gemm" else f"convolution ({operation})")
    for word in (rest or "").split("_"):
        if width_of(word):
            reading.add("result", word, word)
        elif word:
            reading.unknown(word, word)
    reading.add("tile", f"{m}x{n}", f"each block makes {m} x {n} of the result (M x N)")
    reading.add("K and stages", f"{k}x{stages}", f"steps of {k} along K, {stages} of them in flight")
    _layout(reading, layout)
    if alignment:
        reading.add("alignment", f"align{alignment}", f"operands aligned to {alignment} elements")
    width = width_of(element) if element else {"s": 4, "d": 8, "h": 2}.get(letter) if class_ == "simt" else None
    checks.tiles(reading, launch, (m, n, k), stages, width)
    kind = "GEMM" if operation == "gemm" else f"convolution ({operation})"
    reading.summary = f"CUTLASS 2 {kind}, tile {m} x {n}, K in steps of {k}, {stages} stages"
    return reading


def _layout(reading: Reading, layout: str) -> None:
    letters = {"n": "column-major", "t": "row-major"}
    if re.fullmatch(r"[nt]{2}", layout):
        reading.add("layouts", layout, f"A {letters[layout[0]]}, B {letters[layout[1]]}")
    else:
        reading.add("layouts", layout, layout.upper() if layout == "nhwc" else layout)


def _two(body: str, wrapper: str, launch: Launch) -> Reading | None:
    """A CUTLASS 2 kernel as a template."""
    reading = Reading(family="CUTLASS 2", source=_HEADERS)
    _wrapper(reading, wrapper)
    kernel = re.search(r"gemm::kernel::(\w{1,100})", body)
    if kernel:
        reading.add("kernel", kernel[1], "CUTLASS 2 kernel class")
    stages: int | None = None
    mma = inside(body, "MmaMultistage")
    if mma is not None:
        reading.add("main loop", "MmaMultistage", "asynchronous copies, several stages")
        if len(mma) > 10 and mma[10].isdigit():
            stages = int(mma[10])
            reading.add("stages", stages, f"{stages} steps along K in flight", "argument 11 of MmaMultistage")
    elif (mma := inside(body, "MmaPipelined")) is not None:
        stages = 2
        reading.add("main loop", "MmaPipelined", "two stages")
    shape = [int(number) for number in inside(body, "GemmShape") or [] if number.isdigit()]
    if len(shape) == 3:
        reading.add("tile", "x".join(map(str, shape)), "the first GemmShape: M x N x K of a block")
    element = next((t for t in ("bfloat16_t", "half_t", "tfloat32_t", "float_e4m3_t") if f"cutlass::{t}" in body), None)
    if element:
        reading.add("operands", element, "the first such type in the arguments")
    if len(shape) == 3 and stages and element:
        checks.tiles(reading, launch, (shape[0], shape[1], shape[2]), stages, width_of(element))
    gemm = inside(body, "Gemm")
    if gemm is not None and len(gemm) > 3 and gemm[3] in ("true", "false"):
        reading.add("split along K, serial", gemm[3], yes_no(gemm[3]), "argument 4 of kernel::Gemm")
    tile = f", tile {' x '.join(map(str, shape))}" if shape else ""
    reading.summary = f"CUTLASS 2 GEMM of a user or a library{tile}"
    return reading


def _universal(body: str, wrapper: str, launch: Launch) -> Reading:
    """A CUTLASS 3 kernel: ``GemmUniversal<ProblemShape, CollectiveMainloop, CollectiveEpilogue, TileScheduler>``."""
    reading = Reading(family="CUTLASS 3", source=_HEADERS)
    _wrapper(reading, wrapper)
    reading.add("kernel", "GemmUniversal", "CUTLASS 3 GEMM")
    universal = inside(body, "GemmUniversal") or []
    collective = inside(body, "CollectiveMma") or []
    stages = _policy(reading, launch, collective[0]) if collective else None
    tile = integers(collective[1]) if len(collective) > 1 else []
    if len(tile) == 3:
        reading.add("tile", "x".join(map(str, tile)), "M x N x K of a block")
    width = None
    if len(collective) > 4:
        reading.add("A", collective[2][:200], f"elements {plain(collective[2][:200])}")
        reading.add("B", collective[4][:200], f"elements {plain(collective[4][:200])}")
        width = width_of(collective[2]) if collective[2] == collective[4] else None
    atom = re.search(r"MMA_(\d+)x(\d+)x(\d+)_(\w{1,60})", body)
    if atom:
        reading.add("instruction", atom[0], f"{atom[1]} x {atom[2]} x {atom[3]} (M x N x K), types {atom[4]}")
    scheduler = universal[3] if len(universal) > 3 else ""
    if "StreamK" in scheduler or "StreamK" in body:
        reading.add("scheduler", "stream-K", "work is split along K as it fits; whether in a fixed order is not said")
    elif scheduler and scheduler != "void":
        reading.add("scheduler", plain(scheduler)[:100], "order of the tiles")
    if len(tile) == 3 and stages:
        checks.tiles(reading, launch, (tile[0], tile[1], tile[2]), stages, width)
    spoken = f", tile {' x '.join(map(str, tile))}" if tile else ""
    reading.summary = f"CUTLASS 3 GEMM{spoken}{f', {stages} stages' if stages else ''}"
    return reading


def _policy(reading: Reading, launch: Launch, policy: str) -> int | None:
    """The dispatch policy: stages, cluster and schedule where they stand in it; returns the stages."""
    name = plain(policy.partition("<")[0])
    reading.add("main loop", name, "dispatch policy of the main loop")
    values = arguments(policy.partition("<")[2].removesuffix(">"))
    stages = int(values[0]) if values and re.fullmatch(r"\d{1,4}", values[0]) else None
    if stages is not None and "Sm90" in name:
        reading.add("stages", stages, f"{stages} steps along K in flight", "argument 1 of the policy")
    cluster = next((integers(value) for value in values if "tuple<" in value and len(integers(value)) == 3), None)
    if cluster:
        reading.add("cluster", "x".join(map(str, cluster)), f"{cluster[0] * cluster[1] * cluster[2]} blocks a cluster")
        checks.cluster(reading, launch, (cluster[0], cluster[1]))
    for value in values:
        if re.search(r"\bKernel\w+", value) and "tuple<" not in value:
            reading.add("schedule", plain(value)[:100], "how warps share copying and multiplying")
    return stages if "Sm90" in name else None
