"""A limit on the time that a task may take over one row: a pattern that backtracks without end must cost its own row.

Without it the worker would be silent until Ray Data's guard ends the whole sweep, and the row's block would be lost.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

ROW_SECONDS = 60.0
"""Far more than any marking takes; the first row may still import a library."""


@contextmanager
def patience(seconds: float = ROW_SECONDS) -> Iterator[None]:
    """Raises `TimeoutError` inside the block when it takes longer than `seconds`, and again if that is swallowed.

    It reaches Python code and regular expressions, not other C code. Signals need the main thread, which is where Ray
    runs tasks; elsewhere there is no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def give_up(_number: int, _frame: FrameType | None) -> NoReturn:
        raise TimeoutError(f"no end after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
