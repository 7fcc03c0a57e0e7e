"""Memory without a name: made, reserved, sealed, found again by the path of a descriptor. Linux only, no torch."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import re
import stat
from pathlib import Path
from typing import Final

from proctor.rows import UserError
from proctor.transfer.errors import Reason, TransferError

# Numbers of the kernel's interface (fcntl.h); Python has them from 3.8 on, but not on every libc it was built with.
F_ADD_SEALS: Final = getattr(fcntl, "F_ADD_SEALS", 1033)
F_GET_SEALS: Final = getattr(fcntl, "F_GET_SEALS", 1034)
SEAL_SEAL: Final = 0x1
SEAL_SHRINK: Final = 0x2
SEAL_GROW: Final = 0x4
SEAL_WRITE: Final = 0x8
SEAL_FUTURE_WRITE: Final = 0x10
SIZED: Final = SEAL_SHRINK | SEAL_GROW
"""Nobody changes the length: no reader can be made to read behind the end, which would be a SIGBUS."""
FROZEN: Final = SIZED | SEAL_WRITE | SEAL_SEAL
"""Nobody changes anything any more, the maker included."""

_PLACE = re.compile(r"(/proc/\d+/fd/\d+)(?:#(\d+))?")
_NO_ROOM = frozenset({errno.ENOSPC, errno.ENOMEM, errno.EFBIG, errno.EDQUOT})


def make(nbytes: int, name: str) -> int:
    """A descriptor of `nbytes` of zeros in memory, all of them reserved, of a length that is final.

    It has no name in any directory, so that nothing is left once the last process that has it open or mapped is dead,
    however it died; `name` is only what ``/proc`` shows.

    Raises:
        UserError: there is not so much memory, or a limit of this process or its group is in the way.
    """
    if nbytes < 1:
        raise ValueError(f"an arena has at least one byte, not {nbytes}")
    if not hasattr(os, "memfd_create"):
        raise UserError("shared memory between processes needs Linux", where=name)
    _refuse_more_than_there_is(nbytes, name)
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        # Without this the memory would be looked for at the first touch, and a lack of it would be an uncatchable
        # SIGBUS (pytorch #5247) instead of an error here.
        os.posix_fallocate(fd, 0, nbytes)
        fcntl.fcntl(fd, F_ADD_SEALS, SIZED)
    except OSError as error:
        os.close(fd)
        if error.errno in _NO_ROOM:
            raise _no_room(nbytes, name, os.strerror(error.errno or 0)) from None
        raise
    return fd


def freeze(fd: int) -> None:
    """Seals a descriptor of `make` for good.

    Raises:
        TransferError: somebody still has it mapped for writing, here or in another process.
    """
    try:
        fcntl.fcntl(fd, F_ADD_SEALS, SEAL_WRITE | SEAL_SEAL)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        message = "cannot be sealed: it is still mapped for writing, by views of this process or by another process"
        raise TransferError(Reason.EXCEPTION, message) from None


def forbid_others(fd: int) -> None:
    """Nobody writes to it any more but by the mappings that are there now."""
    fcntl.fcntl(fd, F_ADD_SEALS, SEAL_FUTURE_WRITE)


def seals(fd: int) -> int:
    """The seals of an open descriptor; 0 for whatever cannot have any."""
    try:
        return fcntl.fcntl(fd, F_GET_SEALS)
    except OSError:
        return 0


def path_of(fd: int) -> str:
    """How another process of this user opens a descriptor of this one, as long as it is open here.

    With the inode behind it: numbers of descriptors and of processes are used again, and somebody who is late would
    find the memory that came next, which is sealed and sound, too.
    """
    return f"/proc/{os.getpid()}/fd/{fd}#{os.fstat(fd).st_ino}"


def find(path: str, *, needed: int, writable: bool = False) -> int:
    """Opens another process's memory by the path that `path_of` gave there.

    Args:
        path: of the descriptor; nothing else is opened.
        needed: the seals that it has to have.
        writable: open it for writing, too.

    Raises:
        UserError: the path is none of a descriptor, or this user may not open it.
        TransferError: ``DEAD``: its process has ended or closed it; ``MISMATCH``: it is not such memory.
    """
    parts = _PLACE.fullmatch(path)
    if not parts:
        raise UserError("not the path of shared memory", where=path, fix="give /proc/<pid>/fd/<n> as the maker told it")
    try:
        # A descriptor may have been closed and its number used again for a pipe, which must not block.
        fd = os.open(parts[1], (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, ProcessLookupError):
        message = f"nothing at {path}: the process that made it has ended or closed it, or is in another container"
        raise TransferError(Reason.DEAD, message) from None
    except PermissionError:
        raise UserError("shared memory of another user", where=path, fix="run both processes as one user") from None
    except OSError as error:
        raise TransferError(Reason.MISMATCH, f"{path} is no shared memory: {os.strerror(error.errno or 0)}") from None
    found = seals(fd) if stat.S_ISREG(os.fstat(fd).st_mode) else 0
    refused = writable and found & (SEAL_WRITE | SEAL_FUTURE_WRITE)
    if found & needed != needed or refused:
        os.close(fd)
        what = "sealed, so nobody else writes to it" if refused else _lacking(needed)
        raise TransferError(Reason.MISMATCH, f"{path} is {what}")
    if parts[2] and int(parts[2]) != os.fstat(fd).st_ino:
        os.close(fd)
        raise TransferError(Reason.DEAD, f"{path} has been closed, and other memory is in its place")
    return fd


def _lacking(needed: int) -> str:
    return "not sealed: its maker is not ready, or it is something else" if needed == FROZEN else "no shared memory"


def free_bytes(root: Path = Path("/")) -> int:
    """Bytes that can be had without anybody being killed for them: the machine's, or those that this process's cgroup
    (v2), or one around it, has left."""
    available = _numbers(root / "proc/meminfo").get("MemAvailable:")
    free = 1 << 62 if available is None else available << 10
    mount = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    own = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    group = mount / own
    return min([free, *(_left(folder) for folder in (group, *group.parents) if folder.is_relative_to(mount))])


def _left(group: Path) -> int:
    """What a cgroup has left; more than there ever is where it has no limit."""
    try:
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        reclaimable = _numbers(group / "memory.stat").get("inactive_file", 0)
    except (OSError, ValueError):  # no such group, or "max"
        return 1 << 62
    return limit - used + reclaimable


def _numbers(file: Path) -> dict[str, int]:
    """The second word of every line by the first one."""
    lines = (line.split() for line in file.read_text().splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}


def populated(fd: int, nbytes: int) -> mmap.mmap:
    """A shared, writable mapping whose pages are all there and known to this process."""
    return mmap.mmap(fd, nbytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)


def _refuse_more_than_there_is(nbytes: int, name: str) -> None:
    """Where memory runs out the kernel does not refuse: it kills some process."""
    free = free_bytes()
    if nbytes > free:
        raise _no_room(nbytes, name, f"{free:,} are free")


def _no_room(nbytes: int, name: str, why: str) -> UserError:
    fix = "free memory, raise the limit of the container or of this process, or take less at once"
    return UserError(f"no room for {nbytes:,} bytes of shared memory: {why}", where=name, fix=fix)
