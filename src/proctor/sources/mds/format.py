"""Bytes of a shard -> Arrow columns, a block of rows at a time and column by column.

A row is ``u32 size`` for each column whose cells differ in size, then the cells of all columns in order. Both offsets
and sizes come from the file: a row is decoded only if its sizes fill its range exactly. What is wrong with a row is
held against that row alone; its neighbours are decoded as if it were not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from proctor.sources.mds.arrays import decode_ndarray
from proctor.sources.mds.cells import MAX_WINDOW, Bytes, Cells, Faults, Ints
from proctor.sources.mds.encodings import SCALARS, Encoding
from proctor.sources.mds.images import decode_image_list, decode_pil
from proctor.sources.mds.index import Column
from proctor.sources.mds.layout import RowTable, read_cell_sizes
from proctor.sources.mds.values import decode_binary, decode_number_text, decode_scalar, decode_text

Decoder = Callable[[Encoding, Cells, Faults], pa.Array]

_DECODERS: dict[str, Decoder] = {
    **dict.fromkeys(["bytes", "jpeg", "png", "pkl"], decode_binary),
    **dict.fromkeys(["str", "json"], decode_text),
    **dict.fromkeys(["int", *SCALARS], decode_scalar),
    **dict.fromkeys(["str_int", "str_float", "str_decimal"], decode_number_text),
    **dict.fromkeys(["jpegarray", "jpeg_array", "list[jpeg]", "list[png]", "list[pil]"], decode_image_list),
    "ndarray": decode_ndarray,
    "pil": decode_pil,
}


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """Rows of a shard as columns.

    Attributes:
        rows: positions in the shard.
        columns: one array a dataset column, as long as `rows`; null in every column where a row has a fault.
        faults: what is wrong with a row, by its position in `rows`.
    """

    rows: Ints
    columns: list[pa.Array]
    faults: Faults


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """What is needed to decode a shard: its columns and which of them have cells of one size."""

    columns: tuple[Column, ...]
    sizes: tuple[int | None, ...]


def decode_blocks(
    data: Bytes, table: RowTable, layout: ShardLayout, rows: Ints, max_bytes: int, max_rows: int
) -> Iterator[DecodedRows]:
    """Decodes `rows` (ascending positions in the shard) in blocks of about `max_bytes`, at least one row each."""
    starts, ends, faults = table.ranges(rows)
    for begin, end in _cuts(starts, ends, max_bytes, max_rows):
        within = slice(begin, end)
        known = {row - begin: what for row, what in faults.items() if begin <= row < end} if faults else {}
        yield _decode_block(data, layout, rows[within], starts[within], ends[within], known)


def _cuts(starts: Ints, ends: Ints, max_bytes: int, max_rows: int) -> Iterator[tuple[int, int]]:
    """Cuts rows into blocks by their bytes, their number, and the stretch of file that they span."""
    done = np.concatenate([[0], np.cumsum(ends - starts)])
    reach = np.maximum.accumulate(ends)
    begin = 0
    while begin < len(starts):
        by_bytes = int(np.searchsorted(done, done[begin] + max_bytes, side="right")) - 1
        by_span = int(np.searchsorted(reach, starts[begin] + MAX_WINDOW, side="right"))
        end = max(begin + 1, min(by_bytes, by_span, begin + max_rows))
        yield begin, end
        begin = end


def _decode_block(
    data: Bytes, layout: ShardLayout, rows: Ints, starts: Ints, ends: Ints, faults: Faults
) -> DecodedRows:
    known_bad = np.zeros(len(rows), bool)
    known_bad[list(faults)] = True
    placed = np.flatnonzero(~known_bad)
    low = int(starts[placed].min()) if len(placed) else 0
    high = int(ends[placed].max()) if len(placed) else 0
    window = data[low:high]
    placed, columns = _split_rows(window, layout, placed, starts - low, ends - low, faults)
    arrays: list[pa.Array] = []
    for column, cells in zip(layout.columns, columns, strict=True):
        wrong: Faults = {}
        arrays.append(_DECODERS[column.encoding.name](column.encoding, cells, wrong))
        for position, what in wrong.items():
            faults.setdefault(int(placed[position]), f"column {column.name!r}: {what}")
    return DecodedRows(rows, _spread(arrays, placed, len(rows), faults), faults)


def _split_rows(
    window: Bytes, layout: ShardLayout, placed: Ints, starts: Ints, ends: Ints, faults: Faults
) -> tuple[Ints, list[Cells]]:
    """Cells of each column for the rows of `placed` whose sizes add up; a fault for each of the others."""
    lengths = ends[placed] - starts[placed]
    words, taken = read_cell_sizes(window, starts[placed], ends[placed], layout.sizes)
    sound = taken == lengths
    for position in np.flatnonzero(~sound):
        faults[int(placed[position])] = f"its cells take {taken[position]:,} bytes, it has {lengths[position]:,}"
    placed, words = placed[sound], words[sound]
    return placed, list(_columns_of(window, layout.sizes, starts[placed] + 4 * words.shape[1], words))


def _columns_of(window: Bytes, sizes: Sequence[int | None], at: Ints, words: Ints) -> Iterator[Cells]:
    next_word = iter(range(words.shape[1]))
    for size in sizes:
        cell_sizes = words[:, next(next_word)] if size is None else np.full(len(at), size, np.int64)
        yield Cells(window, at, cell_sizes)
        at = at + cell_sizes


def _spread(arrays: list[pa.Array], placed: Ints, count: int, faults: Faults) -> list[pa.Array]:
    """Puts the decoded rows at their places among all rows of the block; rows with a fault are null in every column."""
    if not faults:
        return arrays
    source = np.full(count, -1, np.int64)
    source[placed] = np.arange(len(placed))
    source[list(faults)] = -1
    indices = pa.array(source, mask=source < 0)
    return [array.take(indices) for array in arrays]
