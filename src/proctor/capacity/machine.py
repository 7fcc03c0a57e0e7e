"""What this machine has, read as Ray reads it: memory and CPUs by cgroup, shared memory, disk, GPUs."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

STORE_SHARE = 0.3
STORE_CAP = 200_000_000_000
SHM_SHARE = 0.95
SMALLEST_SHM_CAP = 10_000_000_000
"""Ray 2.60, ``_private/ray_constants.py``: the store is not capped below this, however small ``/dev/shm`` is."""
_SMI = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
_SMI_SECONDS = 20.0


STORE_RULE = "min(0.3 x {}, 200 GB, 0.95 x /dev/shm or 10 GB if that is more)"
"""How Ray chooses the size of its object store, of memory that is to be named."""


def default_object_store(available: int, shm: int | None) -> int:
    """Bytes of the object store that Ray takes unless it is told: see `STORE_RULE`.

    As Ray 2.60's ``resolve_object_store_memory``.

    Args:
        available: bytes of memory that are free when Ray starts.
        shm: bytes of ``/dev/shm``; None if they are not known.
    """
    cap = STORE_CAP if shm is None else min(STORE_CAP, max(SMALLEST_SHM_CAP, int(SHM_SHARE * shm)))
    return min(int(STORE_SHARE * available), cap)


def memory_limit(root: Path = Path("/")) -> int:
    """Bytes of memory that processes here may use: the machine's, or the cgroup's (v1 or v2) if that is less.

    As Ray 2.60's ``get_system_memory``.
    """
    total = _meminfo(root)["MemTotal"]
    limit = _limit(root)
    return total if limit is None else min(total, limit)


def memory_used(root: Path = Path("/")) -> int:
    """Bytes of memory in use that the kernel could not simply take back, within the limit of `memory_limit`."""
    meminfo = _meminfo(root)
    used = meminfo["MemTotal"] - meminfo["MemAvailable"]
    limit = _limit(root)
    if limit is None or limit >= meminfo["MemTotal"]:
        return used
    for usage, name, inactive in (
        ("sys/fs/cgroup/memory/memory.usage_in_bytes", "sys/fs/cgroup/memory/memory.stat", "total_inactive_file"),
        ("sys/fs/cgroup/memory.current", "sys/fs/cgroup/memory.stat", "inactive_file"),
    ):
        if (root / usage).is_file():
            reclaimable = _words(root / name).get(inactive, 0) if (root / name).is_file() else 0
            return max(0, int((root / usage).read_text()) - reclaimable)
    return used


def cpu_count(root: Path = Path("/")) -> int:
    """Whole CPUs: the machine's, or the cgroup's quota (v1 or v2), rounded down, if that is less; at least one."""
    count = os.cpu_count() or 1
    quota = _cpu_quota(root)
    return count if quota is None else max(1, min(count, int(quota)))


def shared_memory() -> int | None:
    """Bytes of ``/dev/shm``, None where there is none."""
    try:
        return shutil.disk_usage("/dev/shm").total  # noqa: S108 (asked about, not written to)
    except OSError:
        return None


def free_disk(path: str | None = None) -> int | None:
    """Free bytes of the disk at `path` (default: where Ray spills, the directory for temporary files)."""
    try:
        return shutil.disk_usage(path or tempfile.gettempdir()).free
    except OSError:
        return None


def gpus() -> list[tuple[str, int]]:
    """Name and bytes of memory of each NVIDIA GPU, as ``nvidia-smi`` tells; none where there is no such command."""
    if shutil.which(_SMI[0]) is None:
        return []
    try:
        done = subprocess.run(_SMI, capture_output=True, text=True, check=True, timeout=_SMI_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return []
    return read_smi(done.stdout)


def read_smi(text: str) -> list[tuple[str, int]]:
    """Reads lines ``name, MiB``; those that are not so are left out."""
    found = []
    for line in text.splitlines():
        name, _, mebibytes = line.rpartition(",")
        if mebibytes.strip().isdigit():
            found.append((name.strip(), int(mebibytes) << 20))
    return found


def _limit(root: Path) -> int | None:
    for name in ("sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/memory.max"):
        if (root / name).is_file():
            text = (root / name).read_text().strip()
            return int(text) if text.isdigit() else None
    return None


def _cpu_quota(root: Path) -> float | None:
    both = root / "sys/fs/cgroup/cpu.max"
    if both.is_file():
        quota, period = both.read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    quota_file = root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us"
    period_file = root / "sys/fs/cgroup/cpu/cpu.cfs_period_us"
    if quota_file.is_file() and period_file.is_file() and (microseconds := int(quota_file.read_text())) > 0:
        return microseconds / int(period_file.read_text())
    return None


def _meminfo(root: Path) -> dict[str, int]:
    return {name.rstrip(":"): 1024 * number for name, number in _words(root / "proc/meminfo").items()}


def _words(path: Path) -> dict[str, int]:
    """The first number of each line, by the word in front of it."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}
