"""The most memory that a piece of work took, in this process: resident bytes over what there was before."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
_WATCH_SECONDS = 0.002


class Peak:
    """What `measured` has found: bytes, and whether the kernel counted them or they were looked at now and then."""

    def __init__(self) -> None:
        self.bytes = 0
        self.exact = True


@contextmanager
def measured() -> Iterator[Peak]:
    """Measures the block: the kernel's own high-water mark, reset before (proc(5), ``clear_refs`` 5).

    Where the mark cannot be reset, a thread looks at the resident memory every 2 ms, and may miss a short peak.
    """
    _settle()
    peak = Peak()
    if _reset():
        before = _resident("VmRSS")
        yield peak
        peak.bytes = max(0, _resident("VmHWM") - before)
        return
    peak.exact = False
    watcher = _Watcher()
    watcher.start()
    try:
        yield peak
    finally:
        peak.bytes = watcher.most()


class _Watcher(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="proctor-peak", daemon=True)
        self._before = self._most = _resident("VmRSS")
        self._done = threading.Event()

    def run(self) -> None:
        """Looks until it is told to stop."""
        while not self._done.wait(_WATCH_SECONDS):
            self._most = max(self._most, _resident("VmRSS"))

    def most(self) -> int:
        """Ends the thread; the most that it saw over what there was before."""
        self._done.set()
        self.join()
        return max(self._most, _resident("VmRSS")) - self._before


def _reset() -> bool:
    try:
        _CLEAR_REFS.write_text(_RESET_PEAK)
    except OSError:
        return False
    return True


def _settle() -> None:
    """Gives freed memory back to the system, where it would hide that it is taken again."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    trim: Any = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _resident(name: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0
