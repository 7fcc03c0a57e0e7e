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
from proctor.sources.mds.windows import ShardData

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
    data: ShardData, table: RowTable, layout: ShardLayout, rows: Ints, max_bytes: int, max_rows: int
) -> Iterator[DecodedRows]:
    """Decodes `rows` (ascending positions in the shard) in blocks of about `max_bytes`, at least one row each.

    Raises:
        ShardError: bytes cannot be had. The rows of earlier blocks are sound.
    """
    starts, ends, faults = table.ranges(rows)
    cuts = list(_cuts(starts, ends, data.gap, max_bytes, max_rows))
    windows = data.windows([(starts[begin:end], ends[begin:end]) for begin, end in cuts])
    for begin, end in cuts:
        window = next(windows)
        known = {row - begin: what for row, what in faults.items() if begin <= row < end} if faults else {}
        lengths = ends[begin:end] - starts[begin:end]
        yield _decode_block(window.data, layout, rows[begin:end], window.starts, window.starts + lengths, known)
        del window  # before the next one comes


def _cuts(starts: Ints, ends: Ints, gap: int, max_bytes: int, max_rows: int) -> Iterator[tuple[int, int]]:
    """Cuts rows into blocks by their bytes (with gaps of up to `gap` between them), their number, and the stretch of
    file that they span."""
    between = np.append(0, starts[1:] - ends[:-1])[: len(starts)]
    taken_along = np.where((between > 0) & (between <= gap), between, 0)
    done = np.concatenate([[0], np.cumsum(ends - starts + taken_along)])
    reach = np.maximum.accumulate(ends)
    begin = 0
    while begin < len(starts):
        by_bytes = int(np.searchsorted(done, done[begin] + max_bytes, side="right")) - 1
        by_span = int(np.searchsorted(reach, starts[begin] + MAX_WINDOW, side="right"))
        end = max(begin + 1, min(by_bytes, by_span, begin + max_rows))
        yield begin, end
        begin = end


def _decode_block(
    window: Bytes, layout: ShardLayout, rows: Ints, starts: Ints, ends: Ints, faults: Faults
) -> DecodedRows:
    known_bad = np.zeros(len(rows), bool)
    known_bad[list(faults)] = True
    placed = np.flatnonzero(~known_bad)
    placed, columns = _split_rows(window, layout, placed, starts, ends, faults)
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
