"""What an MDS dataset is, from its index; and whether its files bear that out, from every byte of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from proctor.sources.base import BLOCK_BYTES
from proctor.sources.mds.files import dataset_files
from proctor.sources.mds.format import ShardLayout, decode_blocks
from proctor.sources.mds.index import Index, ShardInfo, read_index, require_known_hashes
from proctor.sources.mds.layout import ShardError
from proctor.sources.mds.shard import open_shard

if TYPE_CHECKING:
    from proctor.storage.connect import StorageOptions

_BLOCK_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """A column: its name, its MDS encoding, and the Arrow type it becomes."""

    name: str
    encoding: str
    arrow_type: str


@dataclass(frozen=True, slots=True)
class Summary:
    """An MDS dataset as its index describes it; no shard was opened.

    Attributes:
        path: directory or URL of the dataset.
        rows, shards: how many there are.
        columns: in the order in which cells lie in a row.
        compressions: algorithms used (empty: none).
        hashes: digest algorithms in the index (empty: damage inside a value cannot be noticed).
        raw_bytes: uncompressed bytes of all shards; shards of unknown size are not in it.
        stored_bytes: bytes of all shards as stored, likewise.
        unknown_sizes: shards whose size the index does not give.
        largest_shard_bytes: uncompressed bytes of the largest shard.
        mean_row_bytes: uncompressed bytes of a row, on average.
        fingerprint: identity of the dataset: a hash of the index's content.
    """

    path: str
    rows: int
    shards: int
    columns: tuple[ColumnSummary, ...]
    compressions: tuple[str, ...]
    hashes: tuple[str, ...]
    raw_bytes: int
    stored_bytes: int
    unknown_sizes: int
    largest_shard_bytes: int
    mean_row_bytes: float
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with a dataset.

    Attributes:
        file: the shard's file, relative to the dataset.
        row: id of the row it hits; None where it concerns the whole file.
        problem: one line that says what is wrong.
    """

    file: str
    row: int | None
    problem: str


def inspect(path: str | Path, storage: StorageOptions | None = None) -> Summary:
    """Describes the dataset at `path` (its directory, URL or ``index.json``).

    Raises:
        UserError: the index is missing or unsound.
    """
    index = read_index(dataset_files(path, storage), allow_pickle=True)
    raw = [shard.raw.size or 0 for shard in index.shards]
    stored = [((shard.zipped or shard.raw).size or 0) for shard in index.shards]
    sized_rows = sum(shard.samples for shard in index.shards if shard.raw.size)
    files = [file for shard in index.shards for file in (shard.raw, shard.zipped) if file]
    return Summary(
        path=index.files.where,
        rows=index.rows,
        shards=len(index.shards),
        columns=tuple(
            ColumnSummary(column.name, column.encoding.text, str(column.encoding.arrow_type))
            for column in index.columns
        ),
        compressions=tuple(sorted({shard.compression for shard in index.shards if shard.compression})),
        hashes=tuple(sorted({name for file in files for name, _ in file.hashes})),
        raw_bytes=sum(raw),
        stored_bytes=sum(stored),
        unknown_sizes=raw.count(0),
        largest_shard_bytes=max(raw, default=0),
        mean_row_bytes=sum(raw) / sized_rows if sized_rows else 0.0,
        fingerprint=index.fingerprint,
    )


def verify(path: str | Path, storage: StorageOptions | None = None) -> Iterator[Finding]:
    """Reads every shard of the dataset whole and yields what is wrong, shard by shard; nothing if all is well.

    Checked are: files there, digests, decompression, sizes, row counts, offsets, the sizes inside rows, and that every
    cell decodes (text is UTF-8, arrays have their shape; image files are not decoded). Pickles are not looked into.

    Raises:
        UserError: the index is missing or unsound.
    """
    index = read_index(dataset_files(path, storage), allow_pickle=True)
    require_known_hashes(index)
    for shard in index.shards:
        yield from _verify_shard(index, shard)
    yield from _stray(index)


def _verify_shard(index: Index, info: ShardInfo) -> Iterator[Finding]:
    file = info.raw.basename
    try:
        shard = open_shard(index.files, info, verify_hashes=True)
    except ShardError as error:
        yield Finding(file, None, error.message)
        return
    if info.raw.size is not None and info.raw.size != shard.data.size:
        yield Finding(file, None, f"has {shard.data.size:,} bytes, its index says {info.raw.size:,}")
    if shard.table.notice is not None:
        yield Finding(file, None, shard.table.notice)
    layout = ShardLayout(index.columns, info.sizes)
    rows = np.arange(info.samples)
    try:
        for block in decode_blocks(shard.data, shard.table, layout, rows, BLOCK_BYTES, _BLOCK_ROWS):
            for position, what in sorted(block.faults.items()):
                yield Finding(file, int(block.rows[position]) + info.first_row, what)
    except ShardError as error:
        yield Finding(file, None, error.message)


def _stray(index: Index) -> Iterator[Finding]:
    """Shard files that the index does not name."""
    known = {str(PurePosixPath(f.basename)) for shard in index.shards for f in (shard.raw, shard.zipped) if f}
    for name in index.files.names():
        if ".mds" in PurePosixPath(name).name and name not in known:
            yield Finding(name, None, "the index does not name this shard file: its rows are not read")
