"""Limits on the time that one row, or one read, may take: what finds no end must cost its own row.

Without them the worker would be silent until Ray Data's guard ends the whole sweep, and the row's block would be lost.
"""

from __future__ import annotations

import faulthandler
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn, TypeVar

READ_SECONDS = 600.0
"""Far more than reading a block takes; remote reads have limits of their own."""
_WATCHDOG = 5.0
"""Times the limit of a row, after which its worker ends."""
T = TypeVar("T")


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Raises `TimeoutError` inside the block when it takes longer than `seconds`, and again if that is swallowed.

    It reaches Python code and regular expressions, not other C code: after five times the time the process is ended
    (see `deadline`). Signals need the main thread, which is where Ray runs tasks; elsewhere there is only the deadline.
    """
    with deadline(_WATCHDOG * seconds):
        if threading.current_thread() is threading.main_thread():
            with _alarm(seconds):
                yield
        else:
            yield


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Ends the process, its stacks on stderr, when the block takes longer than `seconds`, whatever the block is at.

    The timer is a thread in C and needs no lock of the interpreter's. There is one a process: blocks do not nest.
    """
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def timely(items: Iterable[T], seconds: float = READ_SECONDS) -> Iterator[T]:
    """The items, each under a `deadline`; whoever takes them may take their time."""
    iterator = iter(items)
    while True:
        with deadline(seconds):
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item
        del item  # a block goes before the next one is made


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def give_up(_number: int, _frame: FrameType | None) -> NoReturn:
        raise TimeoutError(f"no end after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
