"""What the scripted engine does when it is swapped to another checkpoint."""

from __future__ import annotations

import os
import signal
import time
from pathlib import PurePosixPath
from typing import Literal

from proctor.engines.base import SwapRefused
from proctor.engines.faults import LONG_SECONDS

SwapKind = Literal["ok", "refuse", "raise", "stale", "hang", "stop", "crash"]


def name_of(model: str) -> str:
    """A checkpoint's name, as in answers: the last part of its path."""
    return PurePosixPath(model).name


def planted_swap(kind: SwapKind, name: str) -> None:
    """Goes wrong as planted; returns where the swap, or what looks like one, succeeds.

    Raises:
        SwapRefused: ``refuse``.
        RuntimeError: ``raise``.
    """
    if kind == "refuse":
        raise SwapRefused(f"planted fault: swap to {name} refused")
    if kind == "raise":
        raise RuntimeError(f"planted fault: swap to {name} fails")
    if kind == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    while kind in ("hang", "stop"):
        time.sleep(LONG_SECONDS)
