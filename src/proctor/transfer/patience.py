"""Waiting in short steps: what is waited for cannot tell that the other side has aborted; the control channel can."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from proctor.transfer.errors import Reason, TransferError

STEP_SECONDS = 0.02
"""How long an abort waits at most until it is seen."""
Result = TypeVar("Result")


def patiently(call: Callable[[float], Result], deadline: float, watch: Callable[[], None]) -> Result:
    """What `call` returns, given a deadline (of `time.monotonic`) that is near, as often as it takes.

    Args:
        call: raises ``LATE`` at the deadline it is given, and can then be called again.
        deadline: when no other call is made.
        watch: called in between; raises if there is nothing to wait for any more.

    Raises:
        TransferError: what `watch` raised, or what `call` raised.
    """
    while True:
        step = min(deadline, time.monotonic() + STEP_SECONDS)
        try:
            return call(step)
        except TransferError as error:
            watch()
            if error.reason is not Reason.LATE or time.monotonic() >= deadline:
                raise
