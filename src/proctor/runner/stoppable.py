"""Ends a block of code from another thread: for a wait inside a library that takes no deadline."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from types import TracebackType
from typing import Self

_ARRIVAL_TICKS = 1000


class Stopped(BaseException):
    """Somebody has ended the block; see `Stoppable.reason`. No `Exception`: libraries swallow those."""


class Stoppable:
    """A block in one thread that others may end.

    The exception reaches Python code, not a call into C: the block must not wait there for long.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self._lock = threading.Lock()
        self._thread: int | None = None

    def __enter__(self) -> Self:
        self._thread = threading.get_ident()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._lock:
            self._thread = None
        if self.reason is not None and not isinstance(error, Stopped):
            with contextlib.suppress(Stopped):  # it is on its way, and must not arrive somewhere else
                for _ in range(_ARRIVAL_TICKS):
                    time.sleep(0.001)

    def stop(self, reason: str) -> None:
        """Has `Stopped` raised in the block, once; does nothing when the block is over."""
        with self._lock:
            if self._thread is not None and self.reason is None:
                self.reason = reason
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(Stopped))
