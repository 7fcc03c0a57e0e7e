"""Memory, shared memory, disk, limits and permissions of this machine."""

from __future__ import annotations

import os
import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from proctor.capacity import machine
from proctor.doctor.findings import Finding

_GB = 1e9
_LEAST_MEMORY = 2_000_000_000
"""Ray's own processes take 1.2 GB (see `proctor.capacity.cluster`)."""
_LEAST_FILES = 4096
_SHM = "/dev/shm"  # noqa: S108 (asked about, not written to)
_LEAST_DISK = 5_000_000_000
_DISK_SHARE = 0.05
"""Ray neither spills nor starts workers on a disk that is fuller than 95 % (``local_fs_capacity_threshold``)."""


def look_at_machine() -> Iterator[Finding]:
    """CPUs and memory, as Ray reads them."""
    limit, used = machine.memory_limit(), machine.memory_used()
    free = limit - used
    what = f"{free / _GB:.1f} GB of {limit / _GB:.1f} GB free, {machine.cpu_count()} CPUs"
    if free < _LEAST_MEMORY:
        fix = "end what takes the memory, or raise the container's limit: docker run --memory"
        yield Finding("machine", "memory", "warning", f"{what}; Ray alone takes more than 1 GB", fix)
    else:
        yield Finding("machine", "memory", "ok", what)
    yield from _shared_memory(free)


def _shared_memory(free: int) -> Iterator[Finding]:
    shm = machine.shared_memory()
    if shm is None:
        fix = "mount -t tmpfs -o size=8g tmpfs /dev/shm"
        yield Finding("machine", _SHM, "warning", "there is none: Ray keeps its objects on the disk", fix)
        return
    store = machine.default_object_store(free, None)
    what = f"{shm / _GB:.1f} GB"
    if shm < store:
        gigabytes = max(1, round(store / 0.9 / _GB))
        what += f"; Ray's object store would be {store / _GB:.1f} GB, and what does not fit is kept on the disk, slowly"
        fix = f"docker run --shm-size={gigabytes}g, or mount -o remount,size={gigabytes}g /dev/shm"
        yield Finding("machine", _SHM, "warning", what, fix)
    else:
        yield Finding("machine", _SHM, "ok", what)


def look_at_disk() -> Iterator[Finding]:
    """The directory for temporary files, where Ray keeps its sessions and spills."""
    place = tempfile.gettempdir()
    try:
        with tempfile.NamedTemporaryFile(prefix="proctor-doctor-"):
            pass
    except OSError as error:
        yield Finding(
            "machine", place, "missing", f"cannot be written to: {error.strerror}", "export TMPDIR=/a/directory"
        )
        return
    found = os.statvfs(place)
    free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    what = f"{free / _GB:.1f} GB of {total / _GB:.1f} GB free"
    if free < _LEAST_DISK or free < _DISK_SHARE * total:
        what += "; Ray stops spilling at 95 %"
        yield Finding("machine", place, "warning", what, "make room, or export RAY_TMPDIR=/a/larger/disk")
    else:
        yield Finding("machine", place, "ok", what)


def look_at_limits(root: Path = Path("/")) -> Iterator[Finding]:
    """Open files, and whether stacks of a stalled engine can be read."""
    files, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY and files < _LEAST_FILES:
        yield Finding("machine", "open files", "warning", f"at most {files:,}; Ray takes thousands", "ulimit -n 65536")
    else:
        yield Finding("machine", "open files", "ok", "no limit" if files == resource.RLIM_INFINITY else f"{files:,}")
    scope = root / "proc/sys/kernel/yama/ptrace_scope"
    level = scope.read_text().strip() if scope.is_file() else "0"
    if level in ("2", "3") and os.geteuid() != 0:
        what = f"ptrace_scope is {level}: a stalled engine is ended without its native stacks"
        yield Finding("machine", "ptrace", "warning", what, "sysctl kernel.yama.ptrace_scope=1 (as root)")
    else:
        yield Finding("machine", "ptrace", "ok", "stacks of a stalled engine can be read")
    if sys.platform != "linux":
        yield Finding("machine", "system", "missing", f"{sys.platform}: Proctor needs Linux", "run it on Linux")
