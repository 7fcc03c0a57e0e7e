"""An arena with known bytes, and what it costs this process."""

from __future__ import annotations

import mmap

from proctor.transfer.arena import Arena

PAGE = mmap.PAGESIZE


def filled(nbytes: int = 3 * PAGE, *, prefault: bool = False) -> Arena:
    arena = Arena.create(nbytes, prefault=prefault)
    arena.write(0, [memoryview(bytes(range(256)) * (nbytes // 256))])
    return arena
