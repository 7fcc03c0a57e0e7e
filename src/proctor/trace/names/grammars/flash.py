"""FlashAttention 2, 3 and 4.

Positions of template arguments are those of the project's own sources: FlashAttention 2 ``kernel_traits.h``,
``flash_fwd_launch_template.h`` (8 flags since 2.6; 7, without softcap, before, as in PyTorch's copy) and
``flash_bwd_launch_template.h``; FlashAttention 3 ``mainloop_fwd_sm90_tma_gmma_ws.hpp``. Forks have other flags: a list
of another length is shown and not explained.
"""

from __future__ import annotations

import math
import re

from proctor.trace.names.decoded import Launch, Reading
from proctor.trace.names.grammars import checks
from proctor.trace.names.grammars.nvjet import capability
from proctor.trace.names.templates import arguments, inside, integers, plain, width_of, yes_no

_FORWARD = ["dropout", "causal", "local", "alibi", "even MN", "even K", "softcap", "return softmax"]
_SPLIT = ["causal", "local", "alibi", "even MN", "even K", "softcap", "split", "append KV"]
_BACKWARD = ["dropout", "causal", "local", "alibi", "even MN", "even K", "softcap"]
_FLAGS = {
    "flash_fwd_kernel": (_FORWARD, [flag for flag in _FORWARD if flag != "softcap"]),
    "flash_fwd_splitkv_kernel": (_SPLIT, [flag for flag in _SPLIT if flag != "softcap"]),
    "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel": (_BACKWARD, [flag for flag in _BACKWARD if flag != "softcap"]),
}
_MEANINGS = {
    "dropout": "dropout on the probabilities",
    "causal": "a query sees no later key",
    "local": "a window of keys around each query",
    "alibi": "ALiBi slopes added to the scores",
    "even MN": "sequence lengths are multiples of the tile, nothing is masked at its edge",
    "even K": "the head dimension is the tile's own",
    "softcap": "scores are capped by tanh",
    "return softmax": "the probabilities are written out, for tests",
    "split": "keys and values are split over blocks; a combine kernel follows",
    "append KV": "new keys and values are appended to the cache in the same kernel",
    "varlen": "sequences of different lengths in one batch",
    "paged KV without TMA": "paged cache read by ordinary copies",
    "Qv": "a second query against the values (MLA)",
    "PV from registers": "probabilities stay in registers for the second product",
    "overlap within a warp group": "softmax of one step overlaps the product of the next",
    "pack GQA": "query heads of one key head share a tile",
    "V column-major": "values are stored column-major",
}
_MAINLOOP = [
    "causal", "local", "softcap", "varlen", "paged KV without TMA", "append KV", "Qv", "PV from registers",
    "overlap within a warp group", "pack GQA", "split", "V column-major",
]  # fmt: skip
_NAMESPACES = r"(?:\w{1,60}::){0,6}"


def read(name: str, launch: Launch) -> Reading | None:
    """Reads FlashAttention kernels; None if it is none."""
    if "FlashAttn" in name:
        return _three(name, launch)
    if name.startswith("kernel_cutlass_") and "flash_attn" in name:
        return _four(name)
    match = re.match(rf"{_NAMESPACES}(flash_(?:fwd|bwd)_\w{{1,60}})<", name)
    return _two(name, match[1], match.end(), launch) if match else None


def _two(name: str, function: str, start: int, launch: Launch) -> Reading:
    reading = Reading(family="FlashAttention 2", source="FlashAttention 2: kernel_traits.h, flash_*_launch_template.h")
    kinds = {
        "flash_fwd_kernel": "forward pass, not split",
        "flash_fwd_splitkv_kernel": "forward pass, split over keys and values",
        "flash_fwd_splitkv_combine_kernel": "joins the splits of a split forward pass",
    }
    what = kinds.get(function, "backward pass" if "_bwd_" in function else "")
    if what:
        reading.add("function", function, what)
    else:
        reading.unknown("function", function)
    values = arguments(name[start : _closing(name, start)])
    traits = inside(name, "Flash_fwd_kernel_traits") or inside(name, "Flash_bwd_kernel_traits") or []
    _traits(reading, traits, launch, function)
    if function == "flash_fwd_splitkv_combine_kernel":
        _combine(reading, values[1:])
    else:
        _flags(reading, values[1:], _FLAGS.get(function, ()))
    if function == "flash_fwd_kernel" and launch.grid is not None and len(traits) > 1:
        x, y, z = launch.grid
        reading.evidence.append(
            f"grid {x} x {y} x {z}: {x} tiles of {traits[1]} queries, batch {y}, {z} heads (as its source launches it)"
        )
    reading.summary = f"FlashAttention 2 {what or function}" + (f", head dimension {traits[0]}" if traits else "")
    return reading


def _closing(name: str, start: int) -> int:
    depth = 1
    for bracket in re.finditer(r"[<>]", name[start:]):
        depth += 1 if bracket[0] == "<" else -1
        if depth == 0:
            return start + bracket.start()
    return len(name)


def _traits(reading: Reading, traits: list[str], launch: Launch, function: str) -> None:
    """``<head dimension, block M, block N, warps, ...>``."""
    numbers = [int(value) for value in traits[:4] if value.isdigit()]
    if len(numbers) < 4:
        return
    head, m, n, warps = numbers
    reading.add("head dimension", head, f"up to {head} elements a head")
    reading.add("tile", f"{m}x{n}", f"{m} queries x {n} keys a step")
    reading.add("warps", warps, f"{warps} warps, {warps * 32} threads")
    if "combine" not in function:
        checks.warps(reading, launch, warps, "the traits")
    if "_bwd_" in function or len(traits) < 7:
        return
    in_registers, shared, element = traits[4:7]
    reading.add("Q in registers", in_registers, yes_no(in_registers))
    reading.add("Q and K share memory", shared, yes_no(shared))
    reading.add("elements", element, plain(element))
    width = width_of(element)
    if function == "flash_fwd_kernel" and shared == "false" and width is not None and launch.shared is not None:
        need = (m * head + 2 * n * head) * width
        line = f"Q, K and V take ({m} + 2 * {n}) * {head} * {width} B = {need:,} B; the launch has {launch.shared:,} B"
        reading.compare(need == launch.shared, line)


def _flags(reading: Reading, values: list[str], lists: tuple[list[str], ...] | tuple[()]) -> None:
    names = next((names for names in lists if len(names) == len(values)), None)
    if names is None or not all(value in ("true", "false") for value in values):
        if values:
            reading.unknown("flags", ", ".join(values)[:1_000], "not a list that upstream has had")
        return
    for name, value in zip(names, values, strict=True):
        reading.add(name, value, f"{yes_no(value)}: {_MEANINGS[name]}", "by its position in the source")


def _combine(reading: Reading, values: list[str]) -> None:
    """``<traits, block M, log2 of the most splits, even K>``."""
    if len(values) == 3 and all(value.isdigit() and len(value) < 5 for value in values[:2]):
        reading.add("rows", values[0], f"{values[0]} rows a block")
        most = 2 ** min(int(values[1]), 30)
        fewest = most // 2 + 1
        reading.add(
            "splits", values[1], f"{fewest} to {most} splits" if most > 2 else "2 splits", "log2 of the most splits"
        )
        reading.add("even K", values[2], f"{yes_no(values[2])}: {_MEANINGS['even K']}")
    elif values:
        reading.unknown("arguments", ", ".join(values)[:1_000])


def _three(name: str, launch: Launch) -> Reading | None:
    kernel = re.search(r"\bFlashAttn(Fwd|Bwd)(\w{0,40})<", name)
    if kernel is None:
        return None
    reading = Reading(family="FlashAttention 3", source="FlashAttention 3: mainloop_fwd_sm90_tma_gmma_ws.hpp")
    what = {"Fwd": "forward pass", "Bwd": "backward pass"}[kernel[1]]
    if kernel[2] == "Combine":
        what = "joins the splits of a split forward pass"
    reading.add("wrapper", "device_kernel", "entry of every CUTLASS 3 kernel; its argument tells which")
    reading.add("kernel", kernel[0][:-1], what)
    if kernel[2].startswith("Sm"):
        architecture = kernel[2].lower()
        reading.add("architecture", kernel[2], f"compute capability {capability(architecture)}")
    mainloop = inside(name, "CollectiveMainloopFwdSm90")
    if mainloop is not None and len(mainloop) >= 19:
        _mainloop(reading, mainloop, launch)
    scheduler = re.search(r"\b(\w{1,80}TileScheduler)\b", name)
    if scheduler:
        reading.add("scheduler", scheduler[1], "order of the tiles")
    head = next((field.value for field in reading.fields if field.name == "head dimension"), "")
    reading.summary = f"FlashAttention 3 {what}" + (f", head dimension {head}" if head else "")
    return reading


def _mainloop(reading: Reading, values: list[str], launch: Launch) -> None:
    """``<stages, cluster, tile MNK, head dimension of V, element, accumulator, architecture, 12 flags, ...>``."""
    cluster, tile = integers(values[1]), integers(values[2])
    reading.add("stages", values[0], f"{values[0]} tiles of K and V in flight")
    if len(cluster) == 3:
        reading.add("cluster", "x".join(map(str, cluster)), f"{math.prod(cluster)} blocks a cluster")
        checks.cluster(reading, launch, (cluster[0], cluster[1]))
    if len(tile) == 3:
        reading.add("tile", f"{tile[0]}x{tile[1]}", f"{tile[0]} queries x {tile[1]} keys a step")
        reading.add("head dimension", tile[2], f"{tile[2]} elements a head of Q and K")
    reading.add("head dimension of V", values[3], f"{values[3]} elements a head of V")
    reading.add("elements", values[4][:100], plain(values[4][:100]))
    reading.add("accumulation", values[5][:100], plain(values[5][:100]))
    for name, value in zip(_MAINLOOP, values[7:19], strict=True):
        if value in ("true", "false"):
            reading.add(name, value, f"{yes_no(value)}: {_MEANINGS[name]}", "by its position in the source")
        else:
            reading.unknown(name, value[:100])
    if len(values) > 19:
        reading.unknown("further arguments", ", ".join(values[19:])[:500], "not in the upstream list")


def _four(name: str) -> Reading:
    reading = Reading(
        family="FlashAttention 4", source="CuTe DSL: module, class and arguments run together in the name"
    )
    reading.add("entry", "kernel_cutlass", "a kernel written in the CuTe DSL")
    module = re.search(r"flash_attn_?(?:cute)?_?(flash_(?:fwd|bwd)\w*?_sm\d{2,3})", name[:500])
    if module:
        reading.add("module", module[0], f"flash_attn.cute.{module[1]}")
        architecture = module[1].rpartition("_")[2]
        reading.add("architecture", architecture, f"compute capability {capability(architecture)}")
    kernel = re.search(r"FlashAttention\w{1,40}Sm\d{2,3}", name[:500])
    if kernel:
        reading.add("class", kernel[0], "the object that holds the kernel")
    element = re.search(r"tensorptr(bf16|f16|e4m3|f8e4m3fn)", name[:2_000])
    if element:
        reading.add("elements", element[1], f"the first tensor points to {element[1]}")
    rest = name.partition("object_at_")[2]
    if rest:
        reading.unknown("arguments", rest[:500], "tensors as the DSL prints them, cut short by it")
    way = "backward" if "bwd" in name[:500] else "forward"
    reading.summary = f"FlashAttention 4 {way} pass (CuTe DSL)"
    return reading
