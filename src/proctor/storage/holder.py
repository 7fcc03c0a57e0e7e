"""Who holds a lease: a process of a machine, told so that a later reader can see whether it still lives."""

from __future__ import annotations

import errno
import os
import time
import uuid
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import msgspec

_HIDDEN = -1


class Holder(msgspec.Struct, frozen=True):
    """Content of ``lease.json``.

    Attributes:
        host: the machine.
        pid: the process, as that machine numbers it.
        boot: identity of the machine's running system and of the process's view of it, in which `pid` has a meaning.
        born: when the process began, in ticks since the system did: a later process may have the same `pid`.
        nonce: identity of this holding.
        sequence: how many heartbeats there were.
        since: when the holding began, by the holder's clock in seconds since the epoch.
        time: last heartbeat, by the same clock.
        ttl: seconds after which the holder gives up when it cannot renew.
        released: the holder has let go.
    """

    host: str
    pid: int
    boot: str
    born: int
    nonce: str
    since: float
    time: float
    ttl: float
    sequence: int = 0
    released: bool = False

    @classmethod
    def me(cls, ttl: float) -> Holder:
        """A new holding by this process."""
        now, pid = time.time(), os.getpid()
        return cls(os.uname().nodename, pid, _system(), _born(pid) or 0, uuid.uuid4().hex, now, now, ttl)

    @property
    def here(self) -> bool:
        """Whether this machine can see the holder's process."""
        return self.boot != "" and self.boot == _system() and self.host == os.uname().nodename

    @property
    def alive(self) -> bool:
        """Whether its process runs; says something only if it is `here`."""
        return _born(self.pid) in (self.born, _HIDDEN)

    def __str__(self) -> str:
        since, last = (datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%d %H:%M:%SZ") for t in (self.since, self.time))
        return f"pid {self.pid} on {self.host} since {since}, last heartbeat {last}"


@cache
def _system() -> str:
    """Identity of the running system and of the view of it (containers number their processes anew)."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _born(pid: int) -> int | None:
    """Start of a process in ticks since the system began; None if there is no such process, or only its remains.

    `_HIDDEN` if it may not be looked at: a system can keep the processes of other users to itself.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESRCH):
            raise
        return _HIDDEN if _exists(pid) else None
    return None if fields[0] in "ZX" else int(fields[19])


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
