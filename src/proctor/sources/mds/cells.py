"""Gathers scattered bytes of a shard into Arrow buffers: a whole column at a time, without a Python loop over rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Faults = dict[int, str]
"""What is wrong with cells of a column, by their position among the cells that were given to the decoder."""

MAX_WINDOW = (1 << 31) - 1
"""Most bytes that one block's rows may span: Arrow's views address their buffer with signed 32 bits."""

_INLINE = 12  # Arrow keeps values of up to 12 bytes inside the 16-byte view itself


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of one column: where each lies in `window`, a stretch of the shard. All ranges were checked before.

    Attributes:
        window: bytes of the shard, at most `MAX_WINDOW` of them.
        starts: position of each cell in the window.
        sizes: bytes of each cell.
    """

    window: Bytes
    starts: Ints
    sizes: Ints

    def __len__(self) -> int:
        return len(self.starts)

    def at(self, rows: NDArray[Any]) -> Cells:
        """The cells of some rows only (positions or a mask)."""
        return Cells(self.window, self.starts[rows], self.sizes[rows])

    def tail(self, skip: Ints | int) -> Cells:
        """The cells without their first `skip` bytes."""
        return Cells(self.window, self.starts + skip, self.sizes - skip)

    def raw(self, row: int) -> bytes:
        """Bytes of one cell."""
        start = int(self.starts[row])
        return self.window[start : start + int(self.sizes[row])].tobytes()


def read_numbers(window: Bytes, positions: Ints, dtype: DTypeLike) -> NDArray[Any]:
    """Little-endian numbers that start at any `positions`, aligned or not. Every position must leave room for one."""
    kind = np.dtype(dtype).newbyteorder("<")
    if len(positions) == 0:
        return np.empty(0, kind)
    # One overlapping element for each byte of the window: numpy then gathers unaligned numbers by plain indexing.
    everywhere = np.ndarray((len(window) - kind.itemsize + 1,), kind, buffer=window, strides=(1,))
    return everywhere[positions]


def binary_array(cells: Cells) -> pa.LargeBinaryArray:
    """The cells as one Arrow column; copies each byte once."""
    if len(cells) == 0:
        return pa.array([], pa.large_binary())
    views = np.zeros((len(cells), 4), "<u4")
    views[:, 0] = cells.sizes
    inline = cells.sizes <= _INLINE
    outside = ~inline
    starts = cells.starts[outside]
    views[outside, 1] = read_numbers(cells.window, starts, "<u4")
    views[outside, 3] = starts
    if inline.any():
        views[inline, 1:] = _inline_words(cells.at(inline))
    buffers = [None, pa.py_buffer(views), pa.py_buffer(cells.window)]
    return pa.Array.from_buffers(pa.binary_view(), len(cells), buffers).cast(pa.large_binary())


def _inline_words(cells: Cells) -> NDArray[np.uint32]:
    """The cells of at most 12 bytes, padded with zeros to three words each."""
    padded = np.zeros((len(cells), _INLINE), np.uint8)
    fits = cells.starts <= len(cells.window) - _INLINE
    roomy = cells.at(fits)
    if len(roomy):
        chunks = read_numbers(roomy.window, roomy.starts, f"V{_INLINE}").view(np.uint8).reshape(-1, _INLINE)
        padded[fits] = np.where(np.arange(_INLINE) < roomy.sizes[:, None], chunks, 0)
    for row in np.flatnonzero(~fits & (cells.sizes > 0)):  # the last few cells of a window
        data = cells.raw(int(row))
        padded[row, : len(data)] = np.frombuffer(data, np.uint8)
    return padded.view("<u4")


def without(array: pa.Array, rows: Iterable[int]) -> pa.Array:
    """The array with nulls at some rows."""
    keep = np.ones(len(array), bool)
    keep[list(rows)] = False
    return array.take(pa.array(np.arange(len(array)), mask=~keep))
