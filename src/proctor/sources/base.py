"""What every source of rows offers: ids without reading the data where it can, and bounded blocks of rows.

A *block* is a `pyarrow.Table` whose first columns are `BLOCK_FIELDS`, followed by the source's own columns (the same
schema for every block of a source). A row that could not be read stands in the block with ``error_kind`` set and nulls
in the source's columns: every wanted id comes out exactly once, as data or as an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa
from pyroaring import BitMap64

BLOCK_BYTES = 16 << 20
"""Most bytes of column data in a block, unless a single row is larger."""

BLOCK_FIELDS: tuple[pa.Field, ...] = (
    pa.field("row_id", pa.int64(), nullable=False),
    pa.field("error_kind", pa.string()),
    pa.field("error_message", pa.string()),
    pa.field("notice", pa.string()),
)


@dataclass(frozen=True, slots=True)
class ReadGroup:
    """A unit of reading work: some rows of one shard. Small and picklable; knows where, holds no data.

    Attributes:
        shard: number of the shard (file) in source order.
        rows: wanted row ids, ascending, all of that shard. Serialised `BitMap64` when packed for transport.
        size_bytes: estimate of the rows' bytes.
    """

    shard: int
    rows: bytes
    size_bytes: int

    @classmethod
    def of(cls, shard: int, rows: BitMap64, size_bytes: int) -> ReadGroup:
        """Packs the ids of `rows`."""
        return cls(shard, rows.serialize(), size_bytes)

    @property
    def row_ids(self) -> BitMap64:
        """The wanted ids."""
        return BitMap64.deserialize(self.rows)


class Source(Protocol):
    """Where rows come from. Instances are picklable and cheap to copy to workers (no open handles, no row data)."""

    def expected(self) -> BitMap64:
        """All row ids of the source: ``0 .. n-1`` in source order. Does not read data where the format allows."""

    def columns(self) -> pa.Schema:
        """The source's own columns (those after `BLOCK_FIELDS` in a block)."""

    def groups(self, todo: BitMap64, max_rows: int, max_bytes: int = BLOCK_BYTES) -> Sequence[ReadGroup]:
        """Splits `todo` into groups in source order, of at most `max_rows` rows and about `max_bytes` bytes each.

        Touches only the shards that have rows in `todo`; pure and cheap.
        """

    def read(self, group: ReadGroup) -> Iterator[pa.Table]:
        """Yields blocks with exactly the rows of `group`, each id once, at most about `BLOCK_BYTES` a block."""

    def fingerprint(self) -> str:
        """Identity of the data set (index or footers, not every byte): a resume on other data is refused by it."""


@runtime_checkable
class Fetching(Protocol):
    """What a source offers besides if it can give single rows with less reading than a `ReadGroup` takes."""

    def fetch(self, row_ids: Iterable[int]) -> pa.Table:
        """A few rows, in order of their ids, as one block.

        Raises:
            UserError: there is no such row.
        """
