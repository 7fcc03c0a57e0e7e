"""Who is on the other side, and whether its process is still there."""

from __future__ import annotations

import os
from pathlib import Path

from proctor.rows import UserError


def this_host() -> str:
    """Names this machine and process namespace: where it is equal, process ids and ``/proc`` mean the same."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}:{Path('/proc/self/ns/pid').readlink()}"


def watch(host: str, pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends, also by SIGKILL; None if it is on another machine.

    Raises:
        ProcessLookupError: it has ended.
    """
    return os.pidfd_open(pid) if host == this_host() else None


def check_address(address: str, *, where: str) -> None:
    """Only this machine may connect.

    Raises:
        UserError: the address is neither ``ipc://PATH`` nor ``tcp://127.0.0.1:PORT``.
    """
    if not address.startswith(("ipc://", "tcp://127.0.0.1:")):
        raise UserError(
            f"{address} could be reached from other machines, and whoever connects gets prompts",
            where=where,
            fix="take ipc://PATH or tcp://127.0.0.1:PORT, and a tunnel between machines",
        )
