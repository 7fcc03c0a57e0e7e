"""MDS datasets as a source of rows: ids from the index alone, blocks from the shards that have wanted rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from proctor.rows import ErrorKind, UserError
from proctor.sources.base import BLOCK_BYTES, BLOCK_FIELDS, ReadGroup
from proctor.sources.blocks import names_in_blocks
from proctor.sources.files import ids_between
from proctor.sources.mds.cells import Ints
from proctor.sources.mds.files import dataset_files
from proctor.sources.mds.format import DecodedRows, ShardLayout, decode_blocks
from proctor.sources.mds.index import ShardInfo, read_index, require_known_hashes
from proctor.sources.mds.layout import ShardError
from proctor.sources.mds.shard import open_shard
from proctor.sources.planning import Extent, plan_groups

if TYPE_CHECKING:
    from proctor.storage.cache import DiskCache
    from proctor.storage.connect import StorageOptions

BLOCK_ROWS = 1 << 16
"""Most rows in a block."""


class MDSSource:
    """Rows of the MDS dataset at `path` (its directory, URL or ``index.json``). Implements `sources.base.Source`.

    Columns keep their names, except that one called like a field of every block gets the prefix ``mds_``. Field
    metadata holds the MDS encoding and the shape of arrays; `encodings` lists the Arrow types.

    Args:
        path: where the dataset lies.
        allow_pickle: let ``pkl`` columns through as raw bytes; they are refused otherwise and never loaded.
        verify_hashes: check the digests that the index has before a shard is used.
        storage: how object storage is reached, for a URL.
        cache: where shards that have to be whole here (compressed, or with digests to check) are kept; None is an
            unnamed temporary file of each process.

    Raises:
        UserError: the index is missing or unsound; names file, shard and field.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        allow_pickle: bool = False,
        verify_hashes: bool = True,
        storage: StorageOptions | None = None,
        cache: DiskCache | None = None,
    ) -> None:
        self._cache = cache
        self._index = read_index(dataset_files(path, storage), allow_pickle=allow_pickle)
        self._verify_hashes = verify_hashes
        self._names = names_in_blocks([column.name for column in self._index.columns], "mds_", self._index.files.where)
        if verify_hashes:
            require_known_hashes(self._index)

    def expected(self) -> BitMap64:
        """All row ids, ``0 .. n-1`` in the order of the index."""
        return ids_between(0, self._index.rows)

    def columns(self) -> pa.Schema:
        """The dataset's columns, in the order of the index."""
        named = zip(self._names, self._index.columns, strict=True)
        return pa.schema([column.encoding.field(name) for name, column in named])

    def fingerprint(self) -> str:
        """Hash of the index's content."""
        return self._index.fingerprint

    def groups(self, todo: BitMap64, max_rows: int, max_bytes: int = BLOCK_BYTES) -> list[ReadGroup]:
        """Splits the wanted rows by shard, then by number and by the shard's mean row size. Opens no file."""
        shards = [[Extent(shard.first_row, shard.samples, shard.size_bytes)] for shard in self._index.shards]
        return list(plan_groups(todo, shards, max_rows, max_bytes))

    def read(self, group: ReadGroup) -> Iterator[pa.Table]:
        """Yields the group's rows in order, as blocks of at most about `BLOCK_BYTES` and `BLOCK_ROWS`."""
        yield from self._read(group, self._verify_hashes)

    def fetch(self, row_ids: Iterable[int]) -> pa.Table:
        """A few rows, in order of their ids, as one block: for those who look at rows, or need one again.

        Of a shard that is not compressed only these rows are read, by ranges. Digests cover whole shards, so they are
        not checked then; what the format itself tells of damage is.

        Raises:
            UserError: the dataset has no such row.
        """
        wanted = BitMap64(row_ids)
        if wanted and wanted.max() >= self._index.rows:
            what = f"no row {wanted.max()}: there are {self._index.rows:,}, counted from 0"
            raise UserError(what, where=self._index.files.where)
        blocks = [block for group in self.groups(wanted, BLOCK_ROWS) for block in self._read(group, verify=False)]
        return pa.concat_tables(blocks) if blocks else self._table([[]] * len(BLOCK_FIELDS), self._nothing(0))

    def largest_row(self, shard: int) -> int:
        """Bytes of the largest row of a shard, by its table of offsets: no row is read. 0 if it cannot be opened."""
        info = self._index.shards[shard]
        try:
            opened = open_shard(self._index.files, info, verify_hashes=False, cache=self._cache)
        except ShardError:
            return 0
        return int(np.diff(opened.table.offsets.astype(np.int64)).max(initial=0))

    def _read(self, group: ReadGroup, verify: bool) -> Iterator[pa.Table]:
        info = self._index.shards[group.shard]
        rows = np.array(group.row_ids.to_array(), np.int64) - info.first_row
        done = 0
        try:
            shard = open_shard(self._index.files, info, verify_hashes=verify, cache=self._cache)
            layout = ShardLayout(self._index.columns, info.sizes)
            for block in decode_blocks(shard.data, shard.table, layout, rows, BLOCK_BYTES, BLOCK_ROWS):
                done += len(block.rows)
                table = self._block(info, block, shard.table.notice)
                del block
                yield table
                del table  # the next block is decoded when this one is gone, if whoever takes them lets go, too
        except ShardError as error:
            yield from self._failed_blocks(info, rows[done:], error)

    def _block(self, info: ShardInfo, decoded: DecodedRows, notice: str | None) -> pa.Table:
        count = len(decoded.rows)
        kinds: list[str | None] = [None] * count
        messages: list[str | None] = [None] * count
        for row, what in decoded.faults.items():
            kinds[row] = ErrorKind.READ_CORRUPT.value
            messages[row] = f"{info.raw.basename}, row {decoded.rows[row]}: {what}"
        notices = None if notice is None else f"{info.raw.basename}: {notice}"
        facts = [decoded.rows + info.first_row, kinds, messages, [notices] * count]
        return self._table(facts, decoded.columns)

    def _failed_blocks(self, info: ShardInfo, rows: Ints, error: ShardError) -> Iterator[pa.Table]:
        for start in range(0, len(rows), BLOCK_ROWS):
            ids = rows[start : start + BLOCK_ROWS] + info.first_row
            facts = [ids, [error.kind.value] * len(ids), [error.message] * len(ids), [None] * len(ids)]
            yield self._table(facts, self._nothing(len(ids)))

    def _nothing(self, count: int) -> list[pa.Array]:
        return [pa.nulls(count, kind) for kind in self.columns().types]

    def _table(self, facts: Sequence[object], columns: list[pa.Array]) -> pa.Table:
        first = [pa.array(values, field.type) for values, field in zip(facts, BLOCK_FIELDS, strict=True)]
        return pa.Table.from_arrays([*first, *columns], schema=pa.schema([*BLOCK_FIELDS, *self.columns()]))
