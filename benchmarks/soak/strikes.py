"""What each kind of fault does to the processes and files of the soak, and to nothing else."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.faults.processes import polled, send, title
from benchmarks.soak.roles import by_role, engine_name, role_of
from benchmarks.soak.schedule import Strike

PATIENCE_SECONDS = 3.0
"""How long a fault waits for a target before it is given up."""
RELIST_SECONDS = 0.5
DISK_FULL_SECONDS = 5.0
_SIGNALS = {
    "kill": signal.SIGKILL,
    "segv": signal.SIGSEGV,
    "stop": signal.SIGSTOP,
    "term": signal.SIGTERM,
    "int": signal.SIGINT,
}


@dataclass(slots=True)
class Struck:
    """A fault that had its turn.

    Attributes:
        time: when, seconds since the epoch.
        driver: the driver's number.
        target: what was hit; None: there was nothing to hit.
        engine: end of the name under which events tell of the engine that was hit, if one was.
        followed: what was seen to follow.
        recovery_s: seconds until what was hit was there again.
    """

    strike: Strike
    time: float
    driver: int
    target: str | None
    engine: str | None = None
    followed: str = ""
    recovery_s: float | None = None
    pid: int | None = field(default=None)


class Chaos:
    """Strikes at the processes with a mark and at the run directory beside them.

    Args:
        disk: the file system that holds `run_dir` alone; None: the disk cannot be filled here.
    """

    def __init__(self, run_dir: Path, disk: Path | None) -> None:
        self._run_dir, self._disk = run_dir, disk
        self.pending_cut: Struck | None = None
        """A cut that is to follow once the driver's processes are gone."""

    def strike(self, strike: Strike, mark: str, driver: int, alive: Callable[[], bool]) -> Struck:
        """Does it, and says what was hit."""
        what, _, how = strike.kind.rpartition(".")
        if what == "disk":
            return self._fill(strike, driver, alive)
        role = "driver" if what == "cut" else what
        number = _SIGNALS.get(how, signal.SIGKILL)
        found = _pick(mark, role, strike.draw)
        struck = Struck(strike, time.time(), driver, None)
        if found is None:
            return struck
        struck.pid, struck.target = found.pid, f"{title(found)[:60].strip()} ({found.pid})"
        struck.engine = engine_name(found, role) if role in ("engine", "actor") else None
        struck.time = time.time()
        send(found.pid, number)
        if what == "cut":
            self.pending_cut = struck
        return struck

    def cut(self) -> None:
        """Does what is pending: half of the newest part, or half of the last event, is gone, as after a power cut."""
        struck, self.pending_cut = self.pending_cut, None
        if struck is None:
            return
        if struck.strike.kind == "cut.part":
            parts = list((self._run_dir / "results").glob("part-*.parquet"))
            file = max(parts, key=lambda part: part.stat().st_mtime_ns, default=None)
            keep = 0 if file is None else file.stat().st_size // 2
        else:
            file = self._run_dir / "events.jsonl"
            lines = file.read_bytes().splitlines(keepends=True) if file.is_file() else []
            keep = sum(map(len, lines)) - len(lines[-1]) // 2 if lines else 0
        if file is None or not keep:
            struck.followed = "nothing to cut"
            return
        os.truncate(file, keep)
        struck.followed = "then half of it was gone"

    def _fill(self, strike: Strike, driver: int, alive: Callable[[], bool]) -> Struck:
        """Fills the disk to the last byte for some seconds."""
        struck = Struck(strike, time.time(), driver, None)
        if self._disk is None:
            struck.followed = "not possible here"
            return struck
        ballast = self._disk / "ballast"
        with ballast.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while True:
                        file.write(b"\0" * size)
                except OSError:
                    continue
        struck.target = f"{self._disk.name} full for {DISK_FULL_SECONDS:g} s"
        for _ in polled(DISK_FULL_SECONDS):
            if not alive():
                break
        ballast.unlink()
        return struck


def _pick(mark: str, role: str, draw: float) -> psutil.Process | None:
    """One of the processes in that role, as soon as there are any.

    What a worker does shows in its title for a moment only, so the workers are looked at again and again.
    """
    family = role.partition(".")[0]
    for _ in polled(PATIENCE_SECONDS, 0.0):
        candidates = [process for found, process in by_role(mark) if found.partition(".")[0] == family]
        for _ in polled(RELIST_SECONDS, 0.01):
            found = [process for process in candidates if family == role or role_of(title(process)) == role]
            if found:
                return found[int(draw * len(found))]
    return None
