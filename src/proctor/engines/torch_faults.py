"""What an exception from torch means for the rows and for the engine."""

from __future__ import annotations

import gc

import torch

_CPU_ALLOCATOR = "can't allocate memory"
"""The CPU allocator's failure has no exception type of its own."""


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on the device or on the host."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or (
        isinstance(error, RuntimeError) and _CPU_ALLOCATOR in str(error)
    )


def broken(error: BaseException) -> bool:
    """Whether the device can no longer be used (e.g. after a device-side assertion): every further row would fail."""
    return isinstance(error, torch.AcceleratorError) and not out_of_memory(error)


def free() -> None:
    """Gives back what the caches of Python and torch hold."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
