"""Bytes on the local disk, mapped into memory: they cost disk and page cache, not heap."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable
from typing import BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


class Sink(Protocol):
    """What bytes are written to."""

    def write(self, data: bytes | bytearray | memoryview, /) -> object:
        """Takes all of `data`, or raises `OSError`."""


Fill = Callable[[Sink], None]
"""Writes the whole content of a file."""
Check = Callable[[Bytes], None]
"""Raises something if that content is not sound."""


def mapped(file: BinaryIO, size: int | None = None) -> Bytes:
    """The first `size` bytes of an open file (default: all), mapped. They stay as long as any array made of them."""
    length = file.seek(0, 2) if size is None else size
    if length == 0:
        return np.zeros(0, np.uint8)
    return np.frombuffer(mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ), np.uint8)


def unnamed(fill: Fill, check: Check) -> Bytes:
    """The content that `fill` writes, in a temporary file without a name: gone once nobody maps it.

    Raises:
        OSError: there is no room, or no directory, for it.
    """
    with tempfile.TemporaryFile(prefix="proctor-shard-") as file:
        fill(file)
        file.flush()
        data = mapped(file)
    check(data)
    return data
