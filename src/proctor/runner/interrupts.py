"""Ctrl-C, SIGTERM and SIGHUP (a terminal that closes) end a run in the same orderly way."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_NUMBERS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[None]:
    """Turns SIGTERM and SIGHUP into `KeyboardInterrupt` while the block runs (only the main thread can)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heeded = [number for number in _NUMBERS if signal.getsignal(number) != signal.SIG_IGN]  # nohup ignores SIGHUP
    before = {number: signal.signal(number, _interrupt) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
