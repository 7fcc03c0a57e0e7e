"""Theoretical occupancy: how many blocks of a launch an SM can hold at once, and what keeps it from holding more.

Source of the arithmetic: NVIDIA's ``cuda_occupancy.h``, with which it agrees exactly. It is an upper bound: what the
launch asks for against what an SM has. How many warps were really resident, a trace does not say.
"""

from __future__ import annotations

import re

import msgspec

from proctor.trace.launches.architectures import SUBPARTITIONS, architecture, product
from proctor.trace.model import Gpu

WARPS, BLOCKS, REGISTERS, SHARED = "warps", "blocks", "registers", "shared memory"
"""What can limit the blocks of an SM."""

_REGISTER_UNIT = 256  # registers are given to a warp in pieces of this size
_MOST_REGISTERS = 256  # a thread; cudaOccRegAllocationMaxPerThread
_FIRST_MAJOR = 7  # older GPUs allocate differently
_AMD = re.compile(r"\b(AMD|Instinct|Radeon|gfx\d+)\b", re.IGNORECASE)
_IN_TRACE = {
    "warps": "maxWarpsPerSm",
    "blocks": "maxBlocksPerSm",
    "registers": "maxRegistersPerSm",
    "shared": "maxShmemPerSm",
    "block_shared": "maxShmemPerBlockOptin",
    "block_threads": "maxThreadsPerBlock",
    "block_registers": "maxRegistersPerBlock",
}


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What an SM of one GPU has.

    Attributes:
        compute: compute capability (major, minor).
        warps: most resident warps an SM.
        blocks: most resident blocks an SM.
        registers: registers an SM.
        shared: bytes of shared memory an SM.
        block_shared: most bytes of shared memory a block can ask for.
        block_threads: most threads a block.
        block_registers: most registers a block.
        origin: where these were read, in words.
        confirmed: False where no capture has confirmed the figures of the table.
        sm_count: SMs of the GPU; None where unknown.
        sm_origin: where the count was read, in words.
    """

    compute: tuple[int, int]
    warps: int
    blocks: int
    registers: int
    shared: int
    block_shared: int
    block_threads: int = 1024
    block_registers: int = 65536
    warp: int = 32
    origin: str
    confirmed: bool = True
    sm_count: int | None = None
    sm_origin: str = "unknown"

    @property
    def reserved(self) -> int:
        """Bytes of shared memory that the driver takes from every block: 1,024 from compute capability 8 on."""
        return 1024 if self.compute[0] >= 8 else 0

    @property
    def shared_unit(self) -> int:
        """Shared memory is given to a block in pieces of so many bytes."""
        return 128 if self.compute[0] >= 8 else 256


class Occupancy(msgspec.Struct, frozen=True, kw_only=True):
    """What an SM holds of a launch.

    Attributes:
        blocks: blocks an SM holds at once; 0: the launch does not fit.
        warps: warps of these blocks.
        share: `warps` of the most that an SM can hold, 0 to 1.
        limiters: all that bind: each of these alone would allow no more blocks.
        allowed: blocks that each resource alone would allow; a resource that the launch does not use is not there.
        why: why it does not fit; empty if it does.
        unknown: what the trace does not say of the launch (``registers``, ``shared memory``): an upper bound then.
    """

    blocks: int
    warps: int
    share: float
    limiters: tuple[str, ...]
    allowed: dict[str, int]
    why: str = ""
    unknown: tuple[str, ...] = ()


def limits_of(gpu: Gpu) -> Limits | None:
    """The limits of a GPU: from the trace where it has them, else by compute capability, else by the product's name.

    Returns:
        None where neither says enough, and for GPUs that are not NVIDIA's or older than compute capability 7.0.
    """
    known = product(gpu.name)
    compute = gpu.compute or (known.compute if known else None)
    if compute is None or compute[0] < _FIRST_MAJOR or _of_other_make(gpu):
        return None
    own = {ours: gpu.limits[theirs] for ours, theirs in _IN_TRACE.items() if gpu.limits.get(theirs, 0) > 0}
    row = architecture(compute)
    table = {} if row is None else {name: getattr(row, name) for name in ("warps", "blocks", "shared", "block_shared")}
    values = {"registers": 65536, **table, **own}
    if not {"warps", "blocks", "shared"} <= values.keys():
        return None
    values.setdefault("block_shared", values["shared"] - (1024 if compute[0] >= 8 else 0))
    origin, from_table = _origin(gpu, compute, own)
    sm_count, sm_origin = _sm_count(gpu)
    return Limits(
        compute=compute,
        **values,
        origin=origin,
        confirmed=not from_table or bool(row and row.confirmed),
        sm_count=sm_count,
        sm_origin=sm_origin,
    )


def occupancy(limits: Limits, *, threads: int, registers: int | None, shared: int | None) -> Occupancy:
    """Blocks of a launch that one SM holds at once.

    Args:
        limits: of the GPU.
        threads: of a block, x * y * z.
        registers: of a thread. 0: the kernel uses none; None: not known, and not considered.
        shared: bytes of a block, static plus dynamic. None: not known, and not considered.
    """
    unknown = tuple(name for name, value in ((REGISTERS, registers), (SHARED, shared)) if value is None)
    if threads <= 0:
        why = f"a block of {threads} threads"
        return Occupancy(blocks=0, warps=0, share=0.0, limiters=(), allowed={}, why=why, unknown=unknown)
    warps = -(-threads // limits.warp)
    allowed = {WARPS: limits.warps // warps if threads <= limits.block_threads else 0, BLOCKS: limits.blocks}
    if registers:
        allowed[REGISTERS] = _by_registers(limits, warps, registers)
    if shared is not None and (taken := shared_of_block(limits, shared)):
        allowed[SHARED] = limits.shared // taken if taken <= limits.block_shared + limits.reserved else 0
    blocks = min(allowed.values())
    return Occupancy(
        blocks=blocks,
        warps=blocks * warps,
        share=blocks * warps / limits.warps,
        limiters=tuple(name for name, count in allowed.items() if count == blocks),
        allowed=allowed,
        why=_why(limits, allowed, threads, registers or 0, shared or 0),
        unknown=unknown,
    )


def shared_of_block(limits: Limits, shared: int) -> int:
    """Bytes of shared memory that a block takes which asks for `shared`: with the driver's part, rounded up."""
    return -(-(shared + limits.reserved) // limits.shared_unit) * limits.shared_unit


def registers_of_warp(limits: Limits, registers: int) -> int:
    """Registers that a warp takes whose threads ask for `registers` each: rounded up."""
    return -(-registers * limits.warp // _REGISTER_UNIT) * _REGISTER_UNIT


def room_for(limits: Limits, *, blocks: int, threads: int) -> tuple[int, int] | None:
    """The most registers a thread and bytes of shared memory a block with which an SM holds so many blocks.

    Returns:
        (registers, shared memory); None where that many do not fit whatever they ask for.
    """
    warps = -(-threads // limits.warp)
    if not 0 < threads <= limits.block_threads or not 0 < blocks <= min(limits.blocks, limits.warps // warps):
        return None
    registers = next((n for n in range(255, 0, -1) if _by_registers(limits, warps, n) >= blocks), 0)
    shared = limits.shared // blocks // limits.shared_unit * limits.shared_unit - limits.reserved
    return registers, min(shared, limits.block_shared)


def _by_registers(limits: Limits, warps: int, registers: int) -> int:
    of_warp = registers_of_warp(limits, registers)
    in_all_parts = -(-warps // SUBPARTITIONS) * SUBPARTITIONS  # the hardware's check of a block counts full rounds
    if registers > _MOST_REGISTERS or of_warp * in_all_parts > limits.block_registers:
        return 0
    return SUBPARTITIONS * (limits.registers // SUBPARTITIONS // of_warp) // warps


def _why(limits: Limits, allowed: dict[str, int], threads: int, registers: int, shared: int) -> str:
    reasons = {
        WARPS: f"{threads:,} threads a block: at most {limits.block_threads:,}",
        BLOCKS: "no blocks",
        REGISTERS: f"{registers} registers for each of {threads:,} threads: a block has {limits.block_registers:,}",
        SHARED: f"{shared:,} bytes of shared memory a block: at most {limits.block_shared:,}",
    }
    return "; ".join(reasons[name] for name, count in allowed.items() if count == 0)


def _of_other_make(gpu: Gpu) -> bool:
    """AMD's GPUs have capabilities too (an MI250 says 9.0), and other rules."""
    return gpu.limits.get("threadsPerWarp", 32) != 32 or bool(_AMD.search(gpu.name))


def _origin(gpu: Gpu, compute: tuple[int, int], own: dict[str, int]) -> tuple[str, bool]:
    """Where the limits are from, and whether any of them are the table's."""
    by = "" if gpu.compute else f", by the name {gpu.name!r}"
    table = f"table for compute capability {compute[0]}.{compute[1]}{by}"
    missing = {"warps", "blocks", "registers", "shared"} - own.keys()
    if not own:
        return table, True
    return (f"{gpu.origin}, the rest from the {table}", True) if missing else (gpu.origin, False)


def _sm_count(gpu: Gpu) -> tuple[int | None, str]:
    if gpu.sm_count:
        return gpu.sm_count, gpu.origin
    known = product(gpu.name)
    if known is None or known.sm_count is None:
        return None, "unknown"
    return known.sm_count, f"by the name {gpu.name!r}" + (f", taken for {known.remark}" if known.remark else "")
