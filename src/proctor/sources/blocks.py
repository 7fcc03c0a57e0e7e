"""Makes blocks (see `proctor.sources.base`) of rows that were read as a plain table."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.types as pt

from proctor.rows import Failure, UserError
from proctor.sources.base import BLOCK_BYTES, BLOCK_FIELDS
from proctor.sources.cells import CellError, holds_bytes, image_bytes, image_type
from proctor.sources.files import DataFolder

T = TypeVar("T")
Faults = dict[int, Failure]
"""What is wrong with rows of a table, by their position in it."""

_SIDE_BY_SIDE = 8
"""Image files that are fetched at the same time from object storage, where most of the time goes by waiting."""
_TAKEN_NAMES = frozenset(field.name for field in BLOCK_FIELDS)


@dataclass(frozen=True, slots=True)
class RawRows:
    """Rows as their file has them.

    Attributes:
        ids: row id of each.
        table: their columns, in the file's types; what stands there for rows with a fault does not matter.
        faults: what is wrong with some of them.
        place: names a row, by its position in the table, in messages: file and row or line.
        folder: where paths of images start.
        notice: what was seen beyond the rows, and means that there may be more of them.
    """

    ids: Sequence[int]
    table: pa.Table
    faults: Faults
    place: Callable[[int], str]
    folder: DataFolder
    notice: str | None = None


def check_distinct(names: Sequence[str], where: str) -> None:
    """Refuses columns that share a name.

    Raises:
        UserError: names the first of them.
    """
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise UserError(f"has several columns named {repeated[0]!r}", where=where, fix="rename them in the data")


def names_in_blocks(names: Sequence[str], prefix: str, where: str) -> list[str]:
    """The names that columns of a source have in blocks: `prefix` is put before one that blocks have themselves.

    Raises:
        UserError: two columns would have the same name.
    """
    check_distinct(names, where)
    for name in names:
        if name in _TAKEN_NAMES and prefix + name in names:
            what = f"has columns {name!r} and {prefix + name!r}; the first is called like a field of every block, and"
            raise UserError(f"{what} would be renamed to the second", where=where, fix="rename one of them in the data")
    return [prefix + name if name in _TAKEN_NAMES else name for name in names]


@dataclass(frozen=True)
class BlockShape:
    """How the columns of a file become those of a block.

    Attributes:
        file_schema: the columns as the file has them.
        images: names (in blocks) of the columns that hold images.
        prefix: put in front of a column's name where a block has a field of that name already.
        where: the data, in messages.

    Raises:
        UserError: two columns have the same name, or would have it in blocks.
    """

    file_schema: pa.Schema
    images: tuple[str, ...]
    prefix: str
    where: str

    def __post_init__(self) -> None:
        names_in_blocks(self.file_schema.names, self.prefix, self.where)

    @property
    def names(self) -> list[str]:
        """Names of the columns in blocks, in the file's order."""
        return names_in_blocks(self.file_schema.names, self.prefix, self.where)

    @property
    def columns(self) -> pa.Schema:
        """The source's columns in blocks: nullable, images as `IMAGE` or `IMAGES` where that can be."""
        fields = zip(self.names, self.file_schema, strict=True)
        return pa.schema(
            [pa.field(name, self._type(name, field.type), metadata=field.metadata) for name, field in fields]
        )

    def _type(self, name: str, type_: pa.DataType) -> pa.DataType:
        # Arrow's views are young: several of its own functions refuse them.
        plain = (
            pa.large_binary() if pt.is_binary_view(type_) else pa.large_string() if pt.is_string_view(type_) else type_
        )
        return (image_type(type_) or plain) if name in self.images else plain

    def blocks(self, rows: RawRows) -> Iterator[pa.Table]:
        """The rows as blocks of at most about `BLOCK_BYTES`, with the bytes of their images."""
        table = rows.table.rename_columns(self.names)
        for start, images in self._read_images(table, rows):
            count = len(images[0]) if images else table.num_rows
            piece = self._with_images(table.slice(start, count), images)
            faults = {at - start: what for at, what in rows.faults.items() if start <= at < start + count}
            yield from _halved(block_of(rows.ids[start : start + count], piece, faults, rows.notice))

    def failed_block(self, ids: Sequence[int], failure: Failure, notice: str | None = None) -> pa.Table:
        """A block of rows that share a fault."""
        nothing = pa.table([pa.nulls(len(ids), kind) for kind in self.columns.types], schema=self.columns)
        return block_of(ids, nothing, dict.fromkeys(range(len(ids)), failure), notice)

    @property
    def _to_read(self) -> list[str]:
        """Image columns whose cells are not bytes yet."""
        types = dict(zip(self.names, self.file_schema.types, strict=True))
        return [
            name for name in self.images if name in types and image_type(types[name]) and not holds_bytes(types[name])
        ]

    def _read_images(self, table: pa.Table, rows: RawRows) -> Iterator[tuple[int, list[list[Any]]]]:
        """Pieces of the table: where each starts, and for each column of `_to_read` the cells of the piece."""
        names = self._to_read
        if not names:
            yield 0, []
            return
        columns = [table.column(name) for name in names]

        def read(at: int) -> list[Any]:
            lost = at in rows.faults
            cells = zip(names, columns, strict=True)
            return [None if lost else self._cell(rows, at, name, column[at].as_py()) for name, column in cells]

        start, size, images = 0, 0, _empty_lists(len(names))
        for at, cells in enumerate(_mapped(read, table.num_rows, _SIDE_BY_SIDE if rows.folder.is_remote else 1)):
            for cell, column in zip(cells, images, strict=True):
                column.append(cell)
                size += _bytes_of(cell)
            if size >= BLOCK_BYTES or at == table.num_rows - 1:
                yield start, images
                start, size, images = at + 1, 0, _empty_lists(len(names))

    def _cell(self, rows: RawRows, at: int, name: str, cell: Any) -> Any:
        images: list[bytes | None] = []
        try:
            for item in cell if isinstance(cell, list) else [cell]:
                images.append(image_bytes(item, rows.folder))  # noqa: PERF401 (how far it got is part of the message)
            return images if isinstance(cell, list) else images[0]
        except CellError as error:
            which = f"column {name!r}" + (f", image {len(images) + 1}" if isinstance(cell, list) else "")
            rows.faults[at] = Failure(error.kind, f"{rows.place(at)}: {which}: {error.message}")
            return None

    def _with_images(self, piece: pa.Table, images: list[list[Any]]) -> pa.Table:
        read = dict(zip(self._to_read, images, strict=True))
        columns = []
        for field, column in zip(self.columns, piece.columns, strict=True):
            if field.name in read:
                columns.append(pa.array(read[field.name], field.type))
            else:
                columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.table(columns, schema=self.columns)


def _mapped(read: Callable[[int], T], count: int, workers: int) -> Iterator[T]:
    """``read(0)``, ``read(1)`` ... in order, by `workers` threads, of which none is far ahead."""
    if workers == 1:
        yield from map(read, range(count))
        return
    with ThreadPoolExecutor(workers) as pool:
        coming: deque[Future[T]] = deque()
        for at in range(count):
            coming.append(pool.submit(read, at))
            if len(coming) > workers:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()


def batches(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Items in lists of about `BLOCK_BYTES`."""
    batch: list[T] = []
    total = 0
    for item in items:
        batch.append(item)
        total += size(item)
        if total >= BLOCK_BYTES:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


def block_of(ids: Sequence[int], columns: pa.Table, faults: Faults, notice: str | None = None) -> pa.Table:
    """One block; rows with a fault get nulls in every column."""
    kinds = [faults[at].kind.value if at in faults else None for at in range(len(ids))]
    messages = [faults[at].message if at in faults else None for at in range(len(ids))]
    head = [pa.array(ids, pa.int64()), pa.array(kinds, pa.string()), pa.array(messages, pa.string())]
    head.append(pa.array([notice] * len(ids), pa.string()))
    sound = [hidden(column, sorted(faults)) for column in columns.columns]
    return pa.table([*head, *sound], schema=pa.schema([*BLOCK_FIELDS, *columns.schema]))


def hidden(column: pa.ChunkedArray, rows: Sequence[int]) -> pa.ChunkedArray:
    """A column with nulls at `rows`. Pieced together, since `take` and `if_else` do not know every type."""
    if not rows:
        return column
    pieces, done = [], 0
    for row in rows:
        pieces += column.slice(done, row - done).chunks
        pieces.append(pa.nulls(1, column.type))
        done = row + 1
    return pa.chunked_array([*pieces, *column.slice(done).chunks], column.type)


def _halved(block: pa.Table) -> Iterator[pa.Table]:
    if block.nbytes <= BLOCK_BYTES or block.num_rows <= 1:
        yield block
        return
    half = block.num_rows // 2
    yield from _halved(block.slice(0, half))
    yield from _halved(block.slice(half))


def _empty_lists(count: int) -> list[list[Any]]:
    return [[] for _ in range(count)]


def _bytes_of(cell: Any) -> int:
    items = cell if isinstance(cell, list) else [cell]
    return sum(len(item) for item in items if item is not None)
