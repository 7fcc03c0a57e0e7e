"""NCCL: ``ncclDevKernel_{collective}[_{operation}_{type}_{algorithm}_{protocol}]``.

What the name says is the kernel that was *entered*. NCCL compiles few kernels and enters the nearest one: its
``src/device/generate.py`` (``best_kernel``) maps every operation to Sum, every algorithm but Tree to RING, and every
protocol to LL, unless it was built with exact names. A name with ``RING_LL`` therefore does not say that the ring, the
LL protocol or a sum was used; NVLS itself may run under it. Names with another protocol or algorithm are exact.
"""

from __future__ import annotations

import re

from proctor.trace.names.decoded import Launch, Reading

_SOURCE = "NCCL src/device/generate.py"
_NAME = re.compile(r"(?:nccl|rccl)(?:Dev)?Kernel_([A-Za-z]+?)(?:_(.*?))?(?:\(.*)?", re.DOTALL)
_COLLECTIVES = {
    "AllReduce": "every rank gets the reduction of all",
    "ReduceScatter": "every rank gets its part of the reduction",
    "Reduce": "one rank gets the reduction",
    "AllGather": "every rank gets the parts of all; no arithmetic",
    "AllGatherV": "every rank gets parts of different size; no arithmetic",
    "Broadcast": "every rank gets the data of one; no arithmetic",
    "SendRecv": "point to point; no arithmetic",
    "Generic": "entry for operations that have no kernel of their own",
}
_OPERATIONS = {"Sum", "Prod", "MinMax", "Max", "Min", "PreMulSum", "SumPostDiv", "Avg"}
_ALGORITHMS = {
    "TREE": "tree",
    "RING": "ring",
    "NVLS": "reduction in the NVLink switch",
    "NVLS_TREE": "reduction in the NVLink switch, tree between nodes",
    "COLLNET_DIRECT": "reduction in the network, direct",
    "COLLNET_CHAIN": "reduction in the network, chain",
    "PAT": "parallel aggregated trees",
}
_PROTOCOLS = {
    "LL": "8-byte stores with flags",
    "LL128": "128-byte stores with flags",
    "SIMPLE": "large chunks, synchronised",
}
_TYPES = re.compile(r"(?:bf16|f16|f32|f64|u8|u32|u64|i8|i32|i64|f8e4m3|f8e5m2|half|float|double|int8_t|uint8_t)")


def read(name: str, _: Launch) -> Reading | None:
    """Reads NCCL kernels; None if it is none."""
    match = _NAME.fullmatch(name[:1_000])
    if match is None:
        return None
    reading = Reading(family="NCCL", source=_SOURCE)
    collective, rest = match[1], match[2] or ""
    meaning = _COLLECTIVES.get(collective)
    if meaning:
        reading.add("collective", collective, meaning)
    else:
        reading.unknown("collective", collective)
    found = _rest(reading, rest)
    if found.get("protocol") == "LL" and found.get("algorithm") in ("RING", "TREE"):
        reading.evidence.append(
            "the name is that of the kernel entered: NCCL enters RING_LL (or TREE_LL) for other operations, protocols "
            "and algorithms too, NVLS among them, unless it was built with exact names; NCCL_DEBUG=INFO with "
            "NCCL_DEBUG_SUBSYS=TUNING says what ran"
        )
    spoken = " ".join(found[key] for key in ("operation", "type") if key in found)
    way = "/".join(found[key] for key in ("algorithm", "protocol") if key in found)
    reading.summary = f"NCCL {collective}{f' {spoken}' if spoken else ''}{f', kernel {way}' if way else ''}"
    return reading


def _rest(reading: Reading, rest: str) -> dict[str, str]:
    """Operation, type, algorithm and protocol, in any of the orders NCCL has used."""
    for name in ("NVLS_TREE", "COLLNET_DIRECT", "COLLNET_CHAIN"):
        rest = rest.replace(name, name.replace("_", "-"))
    found: dict[str, str] = {}
    words = [word.replace("-", "_") for word in rest.split("_")]
    entered = ", by the name of the kernel entered" if "LL" in words else ""
    for word in words:
        if word in _OPERATIONS:
            found["operation"] = word
            reading.add("operation", word, {"MinMax": "minimum or maximum"}.get(word, word))
        elif word in _ALGORITHMS:
            found["algorithm"] = word
            reading.add("algorithm", word, f"{_ALGORITHMS[word]}{entered}")
        elif word in _PROTOCOLS:
            found["protocol"] = word
            reading.add("protocol", word, f"{_PROTOCOLS[word]}{entered}")
        elif _TYPES.fullmatch(word):
            found["type"] = word
            reading.add("type", word, word)
        elif word:
            reading.unknown("further", word[:200])
    return found
