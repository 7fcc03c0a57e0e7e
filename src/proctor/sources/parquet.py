"""Parquet files as a source of rows: ids from the footers alone, blocks read row group by row group.

Column names of a block are those of the file, except that one called like a field of every block gets the prefix
``parquet_``. What a worker holds in memory is a block, its images, a batch of rows, and the largest page (or
dictionary) of each column: a row group is never loaded whole. A row is reached by reading its row group up to it; a
process keeps its place in the row group that it read last, so that blocks in order read a row group once in each
process. Below a URL, footers and pages are fetched by ranges: of other row groups, nothing is.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from proctor.rows import ErrorKind, Failure, UserError
from proctor.sources.base import BLOCK_BYTES, ReadGroup
from proctor.sources.blocks import BlockShape, check_distinct
from proctor.sources.faults import FileError, open_failure
from proctor.sources.files import CHANGED, DataFile, LocalFolder, Version, ids_between
from proctor.sources.kept import Kept
from proctor.sources.listing import list_files
from proctor.sources.planning import Extent, plan_groups
from proctor.sources.rowgroups import RowGroupReader
from proctor.sources.segments import Segment, blocks_of, check_same_columns, lost, nullable, types_of

if TYPE_CHECKING:
    from proctor.storage.connect import StorageOptions

_BATCH_ROWS = 1024
_READ_AHEAD = 1 << 20
_FOOTER_BYTES = 64 << 10
"""How much of a file's end is asked for first: most footers fit."""
_WINDOWS = 8
"""Columns that are read in turn without fetching anything twice."""

_kept: Kept[tuple[DataFile, Version], RowGroupReader] = Kept(1)


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """One file as its footer describes it; an extent a row group; `identity` is its size and a hash of its footer."""

    file: DataFile
    version: Version
    identity: bytes
    row_groups: tuple[Extent, ...]


class ParquetSource:
    """Rows of a Parquet file, or of a directory's ``*.parquet`` files in name order. Implements `base.Source`.

    Args:
        path: the file or directory, or its URL.
        images: columns that hold images (see `cells` for their forms); others keep their type.
        storage: how object storage is reached, for a URL.

    Raises:
        UserError: no files, a footer that cannot be read, or files whose columns differ; names file and column.
    """

    def __init__(self, path: str | Path, *, images: Sequence[str] = (), storage: StorageOptions | None = None) -> None:
        self._files: list[ParquetFile] = []
        self._rows = 0
        digest = hashlib.sha256()
        schema: pa.Schema | None = None
        for file in list_files(path, (".parquet",), storage):
            metadata, identity, version = _read_footer(file)
            found = _plain(metadata.schema.to_arrow_schema(), file)
            schema = schema or found
            check_same_columns(self._files[0].file if self._files else file, schema, file, found)
            digest.update(identity)
            self._add(file, version, identity, metadata)
        assert schema is not None
        self._shape = BlockShape(schema, tuple(images), "parquet_", str(path))
        self._fingerprint = digest.hexdigest()

    def _add(self, file: DataFile, version: Version, identity: bytes, metadata: pq.FileMetaData) -> None:
        row_groups = []
        for number in range(metadata.num_row_groups):
            row_group = metadata.row_group(number)
            row_groups.append(Extent(self._rows, row_group.num_rows, row_group.total_byte_size))
            self._rows += row_group.num_rows
        self._files.append(ParquetFile(file, version, _digest(identity), tuple(row_groups)))

    def expected(self) -> BitMap64:
        """All row ids, ``0 .. n-1``, as the footers count them."""
        return ids_between(0, self._rows)

    def columns(self) -> pa.Schema:
        """The files' columns; image columns as `cells.IMAGE` or `cells.IMAGES`."""
        return self._shape.columns

    def fingerprint(self) -> str:
        """Hash of each file's size and footer, in order: columns, rows, and where each page of data lies, with its
        statistics; not the values themselves, nor names and times of files."""
        return self._fingerprint

    def groups(self, todo: BitMap64, max_rows: int, max_bytes: int = BLOCK_BYTES) -> list[ReadGroup]:
        """Splits the wanted rows along row groups, by number and by their mean size. Opens no file."""
        return list(plan_groups(todo, [file.row_groups for file in self._files], max_rows, max_bytes))

    def read(self, group: ReadGroup) -> Iterator[pa.Table]:
        """Yields the group's rows in order, as blocks of at most about `BLOCK_BYTES`."""
        file = self._files[group.shard]
        first = file.row_groups[0].first_row

        def place(row_id: int) -> str:
            return f"{file.file.name}, row {row_id - first}"

        segments = self._segments(file, list(group.row_ids))
        yield from blocks_of(self._shape, segments, place, file.file.folder)

    def _segments(self, file: ParquetFile, wanted: list[int]) -> Iterator[Segment]:
        """The wanted rows of a file, in order, as pieces that were read or that share a fault."""
        try:
            key = file.file, file.file.same(file.version)
            reader = _kept.take(key) or _opened(file, key[1])
        except OSError as error:
            yield lost(self._shape.file_schema, wanted, open_failure(error))
            return
        except (pa.ArrowException, ValueError) as error:
            yield lost(self._shape.file_schema, wanted, Failure(ErrorKind.READ_CORRUPT, str(error)))
            return
        try:
            for number, extent in enumerate(file.row_groups):
                inside = wanted[
                    bisect_left(wanted, extent.first_row) : bisect_left(wanted, extent.first_row + extent.rows)
                ]
                if inside:
                    yield from self._row_group(reader, number, extent, inside)
        except BaseException:
            reader.close()
            raise
        if wanted[-1] == file.row_groups[-1].first_row + file.row_groups[-1].rows - 1:
            reader.close()
        else:
            _kept.put_back(key, reader)

    def _row_group(self, reader: RowGroupReader, number: int, extent: Extent, wanted: list[int]) -> Iterator[Segment]:
        if not self._is_as_planned(reader.file, number, extent):
            yield lost(self._shape.file_schema, wanted, Failure(ErrorKind.READ_CORRUPT, CHANGED))
            return
        batch_rows = max(1, min(_BATCH_ROWS, int(BLOCK_BYTES / max(1.0, extent.row_bytes))))
        done = 0
        for part in reader.read(number, [row - extent.first_row for row in wanted], batch_rows):
            if isinstance(part, Failure):
                failure = Failure(part.kind, f"row group {number}: {part.message}")
                yield lost(self._shape.file_schema, wanted[done:], failure)
                return
            positions, table = part
            schema = self._shape.file_schema
            yield Segment(
                wanted[done : done + len(positions)], pa.table(table.select(schema.names).columns, schema=schema)
            )
            done += len(positions)

    def _is_as_planned(self, handle: pq.ParquetFile, number: int, extent: Extent) -> bool:
        metadata = handle.metadata
        same_rows = number < metadata.num_row_groups and metadata.row_group(number).num_rows == extent.rows
        return same_rows and types_of(handle.schema_arrow) == types_of(self._shape.file_schema)


def _digest(identity: bytes) -> bytes:
    return hashlib.sha256(identity).digest()


def _opened(file: ParquetFile, version: Version) -> RowGroupReader:
    """The file, if its footer still is the planned one; of an object, its tag has told that.

    Raises:
        OSError: it is another one, or cannot be read.
    """
    if not file.file.folder.is_remote:
        try:
            identity = _read_footer(file.file)[1]
        except UserError as error:
            raise FileError(ErrorKind.READ_CORRUPT, f"{CHANGED}: {error}") from None
        if _digest(identity) != file.identity:
            raise FileError(ErrorKind.READ_CORRUPT, CHANGED)
    return RowGroupReader(_open(file.file, version))


def _open(file: DataFile, version: Version) -> pq.ParquetFile:
    # A buffered stream without pre-buffering: otherwise whole column chunks are loaded before the first row comes.
    return pq.ParquetFile(
        _arrow_file(file, version), pre_buffer=False, buffer_size=_READ_AHEAD, page_checksum_verification=True
    )


def _arrow_file(file: DataFile, version: Version) -> pa.NativeFile:
    if isinstance(file.folder, LocalFolder):
        return pa.OSFile(file.place)
    return pa.PythonFile(file.open(version, windows=_WINDOWS), "r")


def _read_footer(file: DataFile) -> tuple[pq.FileMetaData, bytes, Version]:
    """The footer of a file, its size and footer as bytes, and its version."""
    try:
        version = file.version()
        with file.open(version) as stream:
            stream.seek(max(0, version.size - _FOOTER_BYTES))
            end = stream.read()
            length = int.from_bytes(end[-8:-4], "little") + 8
            if len(end) < length <= version.size:
                stream.seek(version.size - length)
                end = stream.read()
        identity = version.size.to_bytes(8, "little") + end[-length:-8]
        return pq.read_metadata(pa.BufferReader(end)), identity, version
    except (OSError, ValueError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"cannot read the Parquet footer: {reason}", where=file.place) from error


def _plain(schema: pa.Schema, file: DataFile) -> pa.Schema:
    """The columns of a file, each of which has a name of its own."""
    check_distinct(schema.names, file.place)
    return nullable(schema)
