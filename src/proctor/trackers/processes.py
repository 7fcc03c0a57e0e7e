"""Ends a tracker's process with everything that its library has started."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

MARK = "PROCTOR_TRACKER"
"""Variable of the environment that the process and all of its descendants have in common: W&B's service, for one,
leads a session of its own and is found by nothing else."""
_SECONDS = 5.0


def end_marked(mark: str, leader: int, *, spare: int | None = None) -> None:
    """Kills the process group of `leader` and all that carry `mark`, and waits a little until they are gone.

    Args:
        mark: value of `MARK`.
        leader: leads a process group, and has not been waited for.
        spare: a process that is left alone.
    """
    deadline = time.monotonic() + _SECONDS
    if spare is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)
    while (alive := [pid for pid in _carriers(mark) if pid != spare]) and time.monotonic() < deadline:
        for pid in alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _carriers(mark: str) -> list[int]:
    """Processes with `mark` in their environment; none where there is no ``/proc``. A zombie has no environment."""
    entry = f"{MARK}={mark}".encode()
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if entry in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
    return found
