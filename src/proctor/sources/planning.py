"""Splits wanted rows into groups of reading work, along the stretches in which a file is best read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pyroaring import BitMap64

from proctor.sources.base import ReadGroup
from proctor.sources.files import ids_between


class Extent(NamedTuple):
    """Rows that lie together in a shard, e.g. a Parquet row group: the first id, how many, and about how many bytes."""

    first_row: int
    rows: int
    size_bytes: int

    @property
    def row_bytes(self) -> float:
        """Mean bytes of a row."""
        return self.size_bytes / max(1, self.rows)


def plan_groups(
    todo: BitMap64, shards: Sequence[Sequence[Extent]], max_rows: int, max_bytes: int
) -> Iterator[ReadGroup]:
    """Groups of at most `max_rows` rows and about `max_bytes` bytes, in source order; none spans two shards.

    Extents that fit into a group together share it; one that does not fit begins a new group, so that few groups
    have to read an extent that others read, too.
    """
    for number, extents in enumerate(shards):
        if not extents or not todo.range_cardinality(extents[0].first_row, extents[-1].first_row + extents[-1].rows):
            continue
        rows, size = BitMap64(), 0.0
        for extent in extents:
            for piece in _pieces(todo, extent, max_rows, max_bytes):
                piece_size = len(piece) * extent.row_bytes
                if rows and (len(rows) + len(piece) > max_rows or size + piece_size > max_bytes):
                    yield ReadGroup.of(number, rows, round(size))
                    rows, size = BitMap64(), 0.0
                rows |= piece
                size += piece_size
        if rows:
            yield ReadGroup.of(number, rows, round(size))


def _pieces(todo: BitMap64, extent: Extent, max_rows: int, max_bytes: int) -> Iterator[BitMap64]:
    end = extent.first_row + extent.rows
    if not todo.range_cardinality(extent.first_row, end):
        return
    wanted = todo & ids_between(extent.first_row, end)
    most = max(1, min(max_rows, int(max_bytes / max(1.0, extent.row_bytes))))
    for start in range(0, len(wanted), most):
        yield wanted[start : start + most]
