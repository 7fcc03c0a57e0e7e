"""JSON-lines files as a source of rows: one pass at the start counts lines and finds columns; reading seeks.

Files may be compressed as a whole (see `streams` for what that costs) and lie below a URL.

Column types follow from the first rows (see `jsonrows`). A column called like a field of every block gets the prefix
``jsonl_``. A line that is malformed, or does not fit the columns, is a ``read.corrupt`` row; a blank line is no row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import xxhash
from pyroaring import BitMap64

from proctor.rows import ErrorKind, Failure, UserError
from proctor.sources.base import BLOCK_BYTES, BLOCK_FIELDS, ReadGroup
from proctor.sources.blocks import BlockShape, Faults, RawRows, batches
from proctor.sources.faults import open_failure
from proctor.sources.files import CHANGED, ids_between
from proctor.sources.jsonrows import RowError, decode_row, discover, schema_of, table_of
from proctor.sources.lines import Line, LineIndex, index_lines, read_lines
from proctor.sources.listing import list_files
from proctor.sources.planning import Extent, plan_groups
from proctor.sources.streams import COMPRESSIONS

if TYPE_CHECKING:
    from proctor.storage.connect import StorageOptions

FIRST_ROWS = 1000
"""Most rows that the columns are learned from."""
_FIRST_BYTES = 64 << 20
_PREFIX = "jsonl_"
_SUFFIXES = (".jsonl", *(f".jsonl{ending}" for ending in COMPRESSIONS))


class JsonlSource:
    """Rows of a JSON-lines file, or of a directory's ``*.jsonl`` files in name order (also ``.jsonl.gz``,
    ``.jsonl.zst``, ``.jsonl.bz2``). Implements `base.Source`.

    Args:
        path: the file or directory, or its URL.
        images: columns that hold images, each one or a list: text (base64, data URI, relative path), or an object with
            ``bytes`` (base64) or ``path``. A later row may have another of these forms.
        storage: how object storage is reached, for a URL.

    Raises:
        UserError: no files, one that cannot be read, or no row in them that is a JSON object.
    """

    def __init__(self, path: str | Path, *, images: Sequence[str] = (), storage: StorageOptions | None = None) -> None:
        digest = xxhash.xxh3_128()
        self._files: list[LineIndex] = []
        self._first_rows = [0]
        for file in list_files(path, _SUFFIXES, storage):
            try:
                index = index_lines(file, digest.update)
            except OSError as error:
                raise UserError(open_failure(error).message, where=file.place) from None
            digest.update(b"\0end of file")
            self._files.append(index)
            self._first_rows.append(self._first_rows[-1] + index.rows)
        damage = next((index.damage for index in self._files if index.damage), None)
        if damage and not any(index.rows - 1 for index in self._files):
            raise UserError(damage, where=str(path))
        keys = {*images, *(field.name for field in BLOCK_FIELDS if _PREFIX + field.name in images)}
        self._columns = discover(_first_lines(self._files), str(path), keys)
        self._shape = BlockShape(schema_of(self._columns), tuple(images), _PREFIX, str(path))
        self._fingerprint = digest.hexdigest()

    def expected(self) -> BitMap64:
        """All row ids, ``0 .. n-1``, as the first pass counted them."""
        return ids_between(0, self._first_rows[-1])

    def columns(self) -> pa.Schema:
        """The columns that the first rows have; image columns as `cells.IMAGES`."""
        return self._shape.columns

    def fingerprint(self) -> str:
        """Hash of every byte of the files, in order; not of their names, nor of image files that rows refer to."""
        return self._fingerprint

    def groups(self, todo: BitMap64, max_rows: int, max_bytes: int = BLOCK_BYTES) -> list[ReadGroup]:
        """Splits the wanted rows by number and by the mean size of the lines around them. Opens no file."""
        return list(plan_groups(todo, [self._extents(shard) for shard in range(len(self._files))], max_rows, max_bytes))

    def read(self, group: ReadGroup) -> Iterator[pa.Table]:
        """Yields the group's rows in order, as blocks of at most about `BLOCK_BYTES`."""
        index, first = self._files[group.shard], self._first_rows[group.shard]
        ids = list(group.row_ids)
        faults: list[OSError] = []
        for lines in batches(_until_fault(index, [row - first for row in ids], faults), lambda line: len(line.data)):
            yield from self._blocks(index, first, lines)
            ids = ids[len(lines) :]
        if ids:
            fault = open_failure(faults[0]) if faults else Failure(ErrorKind.READ_CORRUPT, CHANGED)
            message = index.damage or f"{index.file.name}: {fault.message}"
            yield self._shape.failed_block(ids, Failure(fault.kind, message), index.damage)

    def _blocks(self, index: LineIndex, first: int, lines: Sequence[Line]) -> Iterator[pa.Table]:
        def place(at: int) -> str:
            return f"{index.file.name}, line {lines[at].number + 1}"

        rows, faults = [], Faults()
        nothing = (None,) * len(self._columns)
        for at, line in enumerate(lines):
            try:
                rows.append(decode_row(self._columns, line.data))
            except RowError as error:
                rows.append(nothing)
                faults[at] = Failure(ErrorKind.READ_CORRUPT, f"{place(at)}: {error}")
        ids = [first + line.row for line in lines]
        table = table_of(self._columns, rows)
        yield from self._shape.blocks(RawRows(ids, table, faults, place, index.file.folder, index.damage))

    def _extents(self, shard: int) -> list[Extent]:
        index, first = self._files[shard], self._first_rows[shard]
        rows = np.diff(index.marks[:, 0], append=index.rows)
        sizes = np.diff(index.marks[:, 2], append=index.size_bytes)
        starts = (index.marks[:, 0] + first).tolist()
        return [Extent(*facts) for facts in zip(starts, rows.tolist(), sizes.tolist(), strict=True)]


def _until_fault(index: LineIndex, wanted: Sequence[int], faults: list[OSError]) -> Iterator[Line]:
    """The lines of some rows; where reading fails they end, and the error is in `faults`."""
    try:
        yield from read_lines(index, wanted)
    except OSError as error:
        faults.append(error)


def _first_lines(files: Iterable[LineIndex]) -> Iterator[bytes]:
    rows, size = 0, 0
    for index in files:
        for line in read_lines(index, range(min(index.rows - (index.damage is not None), FIRST_ROWS - rows))):
            yield line.data
            rows, size = rows + 1, size + len(line.data)
            if size >= _FIRST_BYTES:
                return
