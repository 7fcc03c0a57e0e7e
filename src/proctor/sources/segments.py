"""Rows that were read as Arrow tables, or lost, piece by piece: joined, checked, and made into blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from proctor.rows import ErrorKind, Failure, UserError
from proctor.sources.base import BLOCK_BYTES
from proctor.sources.blocks import BlockShape, Faults, RawRows, hidden
from proctor.sources.files import DataFile, DataFolder


class Segment(NamedTuple):
    """Some rows in order: their ids, and their columns, or what they share as a fault."""

    ids: list[int]
    table: pa.Table
    failure: Failure | None = None


def nullable(schema: pa.Schema) -> pa.Schema:
    """The schema without metadata and requirements: a row that cannot be read has nulls."""
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def lost(schema: pa.Schema, ids: list[int], failure: Failure) -> Segment:
    """Rows that cannot be read."""
    return Segment(ids, pa.table([pa.nulls(len(ids), kind) for kind in schema.types], schema=schema), failure)


def types_of(schema: pa.Schema) -> dict[str, pa.DataType]:
    """Types of columns by their names."""
    return dict(zip(schema.names, schema.types, strict=True))


def check_same_columns(first: DataFile, expected: pa.Schema, file: DataFile, found: pa.Schema) -> None:
    """Refuses a file whose columns are not those of the first one, in whatever order.

    Raises:
        UserError: names the file and the column.
    """
    wanted, there = types_of(expected), types_of(found)
    for name in [*wanted, *there]:
        if wanted.get(name) != there.get(name):
            has, had = there.get(name, "no such column"), wanted.get(name, "no such column")
            raise UserError(
                f"column {name!r} is {has}, in {first.name} it is {had}",
                where=file.place,
                fix="the files of a source must have the same columns",
            )


def rows_at(batch: pa.RecordBatch | pa.Table, positions: Sequence[int]) -> pa.Table:
    """Rows of a batch or table as slices, which copy nothing and, unlike `take`, know every type."""
    slices, begin = [], 0
    for at in range(1, len(positions) + 1):
        if at == len(positions) or positions[at] != positions[at - 1] + 1:
            slices.append(batch.slice(positions[begin], at - begin))
            begin = at
    return pa.concat_tables(slices) if isinstance(batch, pa.Table) else pa.Table.from_batches(slices)


def blocks_of(
    shape: BlockShape,
    segments: Iterable[Segment],
    place: Callable[[int], str],
    folder: DataFolder,
    notice: str | None = None,
) -> Iterator[pa.Table]:
    """The blocks of some segments. A row with a value that cannot be is lost; small segments share a block.

    Args:
        shape: of the blocks; the segments have the columns of its file.
        segments: the rows, in order.
        place: names a row, by its id, in messages.
        folder: where paths of images start.
        notice: as in `blocks.RawRows`.
    """
    for ids, table, faults in _gathered(segments):

        def place_at(at: int, ids: Sequence[int] = ids) -> str:
            return place(ids[at])

        named = {at: Failure(what.kind, f"{place_at(at)}: {what.message}") for at, what in faults.items()}
        yield from shape.blocks(RawRows(ids, table, named, place_at, folder, notice))


def _gathered(segments: Iterable[Segment]) -> Iterator[tuple[list[int], pa.Table, Faults]]:
    """Joins segments until they have `BLOCK_BYTES`, so that small row groups do not make small blocks."""
    ids: list[int] = []
    tables: list[pa.Table] = []
    faults: Faults = {}
    size = 0
    for segment in segments:
        found = _faults(segment)
        table = pa.table([hidden(column, sorted(found)) for column in segment.table.columns], segment.table.schema)
        if tables and size + table.nbytes > BLOCK_BYTES:
            yield ids, pa.concat_tables(tables), faults
            ids, tables, faults, size = [], [], {}, 0
        faults.update({len(ids) + at: what for at, what in found.items()})
        ids.extend(segment.ids)
        tables.append(table)
        size += table.nbytes
    if tables:
        yield ids, pa.concat_tables(tables), faults


def _faults(segment: Segment) -> Faults:
    if segment.failure is not None:
        return dict.fromkeys(range(len(segment.ids)), segment.failure)
    return _unsound_rows(segment.table)


def _unsound_rows(table: pa.Table) -> Faults:
    """Rows with values that cannot be, such as text that is not UTF-8: found nowhere else, and a crash if used."""
    faults: Faults = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if _is_sound(column):
            continue
        for at in range(len(column)):
            if at not in faults and not _is_sound(column.slice(at, 1)):
                faults[at] = Failure(ErrorKind.READ_CORRUPT, f"column {name!r} cannot be read as {column.type}")
    return faults


def _is_sound(column: pa.ChunkedArray) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
