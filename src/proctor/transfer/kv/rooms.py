"""Memory for blocks that come in, used again: pages that are there already cost a quarter of fresh ones."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Final, final

import torch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

IDLE_BYTES: Final = 512 << 20
"""Most memory that is kept for blocks to come."""


@final
class Rooms:
    """Gives memory out, and takes it back by itself when the last tensor in it is gone.

    `take` belongs to one thread; the tensors may go wherever they like.

    Args:
        idle_bytes: see `IDLE_BYTES`.
    """

    def __init__(self, idle_bytes: int = IDLE_BYTES) -> None:
        self._most = idle_bytes
        self._idle: list[NDArray[np.uint8]] = []  # whoever lets go appends, the thread of `take` removes

    @property
    def idle_bytes(self) -> int:
        """How much is kept now."""
        return sum(len(memory) for memory in tuple(self._idle))

    def take(self, nbytes: int) -> torch.Tensor:
        """A uint8 tensor (nbytes,) of arbitrary content, its own until nothing shares its storage any more."""
        memory = self._fitting(nbytes)
        # torch holds this very object as long as the storage lives, whatever views of it there are.
        lent = memory[:nbytes]
        weakref.finalize(lent, self._idle.append, memory).atexit = False
        return torch.from_numpy(lent)

    def _fitting(self, nbytes: int) -> NDArray[np.uint8]:
        while self.idle_bytes > self._most:
            del self._idle[0]
        for index, memory in enumerate(self._idle):
            if nbytes <= len(memory) <= max(2 * nbytes, 1 << 20):
                del self._idle[index]
                return memory
        fresh: NDArray[np.uint8] = torch.empty(nbytes, dtype=torch.uint8).numpy()  # torch aligns, numpy does not
        return fresh
