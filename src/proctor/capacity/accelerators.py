"""Memory of GPUs by the name that Ray gives a node: label ``ray.io/accelerator-type``, resource ``accelerator_type:X``.

Only names that say it: "A100" (40 or 80 GB), "V100" (16 or 32 GB) and most others do not, and a guess would be worse.
"""

from __future__ import annotations

_MIB = 1 << 20

GPU_MEMORY: dict[str, tuple[int, str]] = {
    # As `nvidia-smi` reports it: what a program can see, a little less than what is printed on the box.
    "T4": (15_360 * _MIB, "nvidia-smi, modal-labs/modal-client#2797"),
    "A10G": (23_028 * _MIB, "nvidia-smi (A10), modal-labs/modal-client#2797"),
    "L4": (23_034 * _MIB, "nvidia-smi, modal-labs/modal-client#2797"),
    "L40S": (46_068 * _MIB, "nvidia-smi, modal-labs/modal-client#2797"),
    "A100-40G": (40_960 * _MIB, "nvidia-smi, modal-labs/modal-client#2797"),
    "A100-80G": (81_920 * _MIB, "nvidia-smi, modal-labs/modal-client#2797"),
    "H100": (81_559 * _MIB, "nvidia-smi (SXM 80 GB), modal-labs/modal-client#2797"),
    "H200": (141_000_000_000, "NVIDIA's data sheet, in GB"),
}
"""Bytes of one GPU, and who says so."""


def gpu_memory(name: str | None) -> tuple[int | None, str]:
    """Bytes of memory of a GPU of this name, None if the name does not say; and where that is from."""
    if name is None:
        return None, "the node does not say which GPU it has"
    found = GPU_MEMORY.get(name.removeprefix("NVIDIA-"))
    return found if found is not None else (None, f"the name {name!r} does not say how much memory the GPU has")
