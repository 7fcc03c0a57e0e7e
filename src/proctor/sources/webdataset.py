"""WebDataset archives as a source of rows: members with the same key are a row, their extensions are its columns.

The key of a member is its path up to the first dot of its base name, and its extension is the rest, in lower case
(``train/0007.seg.png``: ``train/0007`` and ``seg.png``). A row ends where the key changes.

=====================================  ================================================================================
extension                              column
=====================================  ================================================================================
``txt``, ``text``, ``transcript``      large_string
``json``, ``jsn``                      JSON: large_string, marked as such
``cls``, ``cls2``, ``index``, ``inx``  int64
any other                              large_binary: the bytes; nothing is unpickled
=====================================  ================================================================================

The column ``__key__`` has the key. A column called like a field of every block gets the prefix ``tar_``. One pass at
the start reads the headers, and passes over data where the archive is not compressed; of each row it keeps the place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray
from pyroaring import BitMap64

from proctor.rows import ErrorKind, Failure, UserError
from proctor.sources.base import BLOCK_BYTES, ReadGroup
from proctor.sources.blocks import BlockShape, RawRows, batches
from proctor.sources.faults import open_failure
from proctor.sources.files import CHANGED, DataFile, Version, ids_between
from proctor.sources.jsonrows import JSON_METADATA
from proctor.sources.listing import list_files
from proctor.sources.planning import Extent, plan_groups
from proctor.sources.streams import COMPRESSIONS, reading
from proctor.sources.tarmembers import Damage, Member, members

if TYPE_CHECKING:
    from proctor.storage.connect import StorageOptions

KEY = "__key__"
_SUFFIXES = (".tar", ".tgz", *(f".tar{ending}" for ending in COMPRESSIONS))
_PREFIX = "tar_"
_EXTENT_ROWS = 64
_TEXT = frozenset({"txt", "text", "transcript"})
_JSON = frozenset({"json", "jsn"})
_NUMBER = frozenset({"cls", "cls2", "index", "inx"})


@dataclass(frozen=True, slots=True, eq=False)
class TarIndex:
    """Where the rows of an archive lie.

    Attributes:
        file, version: the archive, and what it was when it was indexed.
        places: int64 [n + 1]; where the headers of each row begin, and where the last one ends.
        damaged: rows beside bytes that are no archive: some of their members may be lost.
        damage: the first damage; there may be more rows than could be counted.
    """

    file: DataFile
    version: Version
    places: NDArray[np.int64]
    damaged: frozenset[int]
    damage: str | None

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.places) - 1


class WebDatasetSource:
    """Rows of a WebDataset archive, or of a directory's ``*.tar`` files in name order. Implements `base.Source`.

    Args:
        path: the archive or directory, or its URL.
        images: columns that hold images.
        storage: how object storage is reached, for a URL.

    Raises:
        UserError: no files, one that cannot be read, or none with a sample in it.
    """

    def __init__(self, path: str | Path, *, images: Sequence[str] = (), storage: StorageOptions | None = None) -> None:
        digest = xxhash.xxh3_128()
        self._files: list[TarIndex] = []
        self._first_rows = [0]
        extensions: dict[str, None] = {}
        for file in list_files(path, _SUFFIXES, storage):
            try:
                index = _index(file, extensions, digest.update)
            except OSError as error:
                raise UserError(open_failure(error).message, where=file.place) from None
            self._files.append(index)
            self._first_rows.append(self._first_rows[-1] + index.rows)
        if not extensions:
            damage = next((index.damage for index in self._files if index.damage), None)
            raise UserError(damage or "no members with a name like key.extension", where=str(path))
        self._shape = BlockShape(
            pa.schema([_field(name) for name in (KEY, *extensions)]), tuple(images), _PREFIX, str(path)
        )
        self._fingerprint = digest.hexdigest()

    def expected(self) -> BitMap64:
        """All row ids, ``0 .. n-1``, as the first pass counted them."""
        return ids_between(0, self._first_rows[-1])

    def columns(self) -> pa.Schema:
        """``__key__``, and a column for each extension, in the order in which they first appear."""
        return self._shape.columns

    def fingerprint(self) -> str:
        """Hash of the archives' headers, in order: names, sizes and times of members; not of their data."""
        return self._fingerprint

    def groups(self, todo: BitMap64, max_rows: int, max_bytes: int = BLOCK_BYTES) -> list[ReadGroup]:
        """Splits the wanted rows by number and by the mean size of the rows around them. Opens no file."""
        return list(plan_groups(todo, [self._extents(shard) for shard in range(len(self._files))], max_rows, max_bytes))

    def read(self, group: ReadGroup) -> Iterator[pa.Table]:
        """Yields the group's rows in order, as blocks of at most about `BLOCK_BYTES`."""
        index, first = self._files[group.shard], self._first_rows[group.shard]
        for rows in batches(_rows(index, [row - first for row in group.row_ids]), lambda row: row.size):
            yield from self._blocks(index, first, rows)

    def _blocks(self, index: TarIndex, first: int, rows: Sequence[_Row]) -> Iterator[pa.Table]:
        def place(at: int) -> str:
            return f"{index.file.name}, sample {rows[at].number}"

        faults = {
            at: Failure(row.fault.kind, f"{place(at)}: {row.fault.message}") for at, row in enumerate(rows) if row.fault
        }
        schema = self._shape.file_schema
        columns = [pa.array([row.cells.get(name) for row in rows], type_) for name, type_ in _types(schema)]
        ids = [first + row.number for row in rows]
        table = pa.table(columns, schema=schema)
        yield from self._shape.blocks(RawRows(ids, table, faults, place, index.file.folder, index.damage))

    def _extents(self, shard: int) -> list[Extent]:
        index, first = self._files[shard], self._first_rows[shard]
        starts = range(0, index.rows, _EXTENT_ROWS)
        ends = [min(index.rows, start + _EXTENT_ROWS) for start in starts]
        sizes = [int(index.places[end] - index.places[start]) for start, end in zip(starts, ends, strict=True)]
        return [Extent(first + start, end - start, size) for start, end, size in zip(starts, ends, sizes, strict=True)]


@dataclass(slots=True)
class _Row:
    """A row of an archive: its number there, its cells by column, and what is wrong with it."""

    number: int
    cells: dict[str, Any] = field(default_factory=dict)
    size: int = 0
    fault: Failure | None = None


def _rows(index: TarIndex, wanted: Sequence[int]) -> Iterator[_Row]:
    """The rows with these numbers, ascending; each comes, with a fault if it cannot be read."""
    done = 0
    try:
        with reading(index.file, index.version, int(index.places[wanted[0]])) as stream:
            for number in wanted:
                row = _read_row(stream, index, number)
                done += 1
                yield row
    except OSError as error:
        for number in wanted[done:]:
            yield _Row(number, fault=open_failure(error))


def _read_row(stream: BinaryIO, index: TarIndex, number: int) -> _Row:
    row = _Row(number)
    start, end = (int(place) for place in index.places[number : number + 2])
    if number in index.damaged:
        row.fault = Failure(ErrorKind.READ_CORRUPT, f"beside damage, some of it may be lost: {index.damage}")
        return row
    for found in members(stream, start, end):
        fault = found.message if isinstance(found, Damage) else _add(row, found, stream)
        if fault is not None:
            return _Row(number, fault=Failure(ErrorKind.READ_CORRUPT, fault))
    if not row.cells:
        row.fault = Failure(ErrorKind.READ_CORRUPT, CHANGED)
    return row


def _add(row: _Row, member: Member, stream: BinaryIO) -> str | None:
    """Reads a member into its row; says what is wrong with it, if something is."""
    key, extension = _split(member.name)
    if not extension:
        return None
    if member.fault is not None:
        return f"member {member.name!r} {member.fault}"
    data = stream.read(member.size)
    if len(data) < member.size:
        return f"member {member.name!r} is cut off: {len(data):,} of {member.size:,} bytes are there"
    if extension in row.cells:
        return f"there are two members {member.name!r}"
    try:
        row.cells[extension] = _value(extension, data)
    except ValueError as error:
        return f"member {member.name!r}: {error}"
    row.cells[KEY] = key
    row.size += member.size
    return None


def _index(file: DataFile, extensions: dict[str, None], digest: Callable[[bytes], object]) -> TarIndex:
    """Finds the rows of an archive; adds their extensions to those found before."""
    version = file.version()
    places: list[int] = []
    damaged: set[int] = set()
    damage, key, end = None, "", 0
    with reading(file, version) as stream:
        for found in members(stream, 0, None, digest):
            if isinstance(found, Damage):
                damage = damage or f"{file.name} is damaged at byte {found.start:,}: {found.message}"
                if not places:
                    places.append(found.start)
                damaged |= {len(places) - 1, len(places)}  # the row before, and the one that comes next
                key, end = "", max(end, found.start)
                continue
            name, extension = _split(found.name)
            if not extension:
                continue
            extensions[extension] = None
            if name != key:
                places.append(found.start)
                key = name
            end = found.data + found.size
    rows = len(places)
    return TarIndex(file, version, np.array([*places, end], np.int64), frozenset(damaged - {rows}), damage)


def _split(name: str) -> tuple[str, str]:
    """Key and extension of a member; an empty extension if it is part of no row."""
    folder, slash, base = name.rpartition("/")
    stem, _, extension = base.partition(".")
    is_meta = base.startswith("__") and base.partition("__")[2].rpartition("__")[1] == "__"
    if not stem or is_meta:
        return "", ""
    return f"{folder}{slash}{stem}", extension.lower()


def _field(name: str) -> pa.Field:
    kind = name.rpartition(".")[2]
    if name == KEY or kind in _TEXT:
        return pa.field(name, pa.large_string())
    if kind in _JSON:
        return pa.field(name, pa.large_string(), metadata=JSON_METADATA)
    return pa.field(name, pa.int64() if kind in _NUMBER else pa.large_binary())


def _value(name: str, data: bytes) -> str | int | bytes:
    """A cell.

    Raises:
        ValueError: it does not have the type of its column.
    """
    type_ = _field(name).type
    if type_ == pa.large_binary():
        return data
    text = data.decode()
    if type_ == pa.large_string():
        return text
    number = int(text)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError("no whole number of 64 bits")
    return number


def _types(schema: pa.Schema) -> Iterator[tuple[str, pa.DataType]]:
    return zip(schema.names, schema.types, strict=True)
