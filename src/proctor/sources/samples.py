"""From blocks to samples. What a cell says is read row by row: a wrong one costs its own row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa

from proctor.rows import ErrorKind, Failure, Sample
from proctor.sources.base import BLOCK_FIELDS
from proctor.sources.cells import CellError, image_bytes
from proctor.sources.columns import check_columns, is_json
from proctor.spec import ColumnsSpec
from proctor.spec.source import is_expression

if TYPE_CHECKING:
    from proctor.sources.expressions import Computed

__all__ = ["FieldError", "Fields", "Unprepared", "check_columns", "to_samples"]


class Unprepared(NamedTuple):
    """A row that cannot become a sample, and why; with `sample_id` if that much is known."""

    row_id: int
    failure: Failure
    sample_id: str | None = None


class FieldError(ValueError):
    """A cell whose value cannot be read or used; the text names its column."""


class _Column:
    """A column of a block whose cells are read one at a time."""

    def __init__(self, field: pa.Field, cells: pa.ChunkedArray) -> None:
        self.name = field.name
        self._cells = cells.chunk(0) if cells.num_chunks == 1 else cells
        self._is_json = is_json(field)

    def at(self, row: int) -> Any:
        """Value of a cell.

        Raises:
            FieldError: it has none, e.g. JSON that is malformed.
        """
        try:
            value = self._cells[row].as_py()
            return msgspec.json.decode(value) if self._is_json and value is not None else value
        except (ValueError, OverflowError, RecursionError, pa.ArrowException) as error:
            what = "not JSON: " if self._is_json else ""
            raise FieldError(f"column {self.name!r}: {what}{error}") from error


class _Computed(_Column):
    """The values of a column expression; the column is called like it."""

    def __init__(self, computed: Computed) -> None:
        super().__init__(computed.field, computed.cells)
        self._faults = computed.faults

    def at(self, row: int) -> Any:
        """Value for a row.

        Raises:
            FieldError: the expression failed for it.
        """
        if row in self._faults:
            raise FieldError(f"column {self.name!r}: {self._faults[row]}")
        return super().at(row)


class Fields(Mapping[str, Any]):
    """The columns of one row, each read when it is asked for: what nobody needs is neither copied nor parsed.

    Access raises `FieldError` if the cell cannot be read.
    """

    __slots__ = ("_columns", "_row")

    def __init__(self, columns: Mapping[str, _Column], row: int) -> None:
        self._columns, self._row = columns, row

    def __getitem__(self, name: str) -> Any:
        return self._columns[name].at(self._row)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def to_samples(block: pa.Table, columns: ColumnsSpec) -> Iterator[Sample | Unprepared]:
    """One sample, or the reason why there is none, for each row of a block, in order.

    The block is as in `sources.base`; `columns` must have passed `check_columns`. Images come in the order of
    `columns.images`. A sample's fields are read from the block on access, so they should not outlive it by much; the
    value of a column expression is the field that is called like it.
    """
    head = len(BLOCK_FIELDS)
    ids, kinds, messages = (block.column(number).to_pylist() for number in range(3))
    every = {
        field.name: _Column(field, cells)
        for field, cells in zip(list(block.schema)[head:], block.columns[head:], strict=True)
    }
    every.update(_computed(block, columns))
    images = [every[name] for name in columns.images]
    fields = {name: column for name, column in every.items() if name not in columns.images}
    for row, (row_id, kind, message) in enumerate(zip(ids, kinds, messages, strict=True)):
        if kind is not None:
            yield Unprepared(row_id, Failure(ErrorKind(kind), message or ""))
        else:
            yield _sample(row_id, Fields(fields, row), images, row, columns)


def _computed(block: pa.Table, columns: ColumnsSpec) -> dict[str, _Column]:
    named = [*columns.images, columns.sample_id, columns.target, columns.prompt]
    texts = dict.fromkeys(name for name in named if name is not None and is_expression(name))
    if not texts:
        return {}
    from proctor.sources.expressions import compute

    return {text: _Computed(compute(block, text)) for text in texts}


def _sample(
    row_id: int, fields: Fields, images: Sequence[_Column], row: int, columns: ColumnsSpec
) -> Sample | Unprepared:
    sample_id: str | None = None
    try:
        if columns.sample_id is not None:
            sample_id = _text(fields[columns.sample_id])
        if columns.prompt is not None and fields[columns.prompt] is None:
            raise FieldError(f"column {columns.prompt!r}: no prompt (null)")
        if columns.target is not None:
            fields[columns.target]  # looked at here so that a wrong one is this row's failure
        return Sample(row_id, sample_id, tuple(_images(images, row)), fields)
    except CellError as error:
        return Unprepared(row_id, Failure(ErrorKind.PREPARE_DECODE, error.message), sample_id)
    except FieldError as error:
        return Unprepared(row_id, Failure(ErrorKind.PREPARE_FAILED, str(error)), sample_id)


def _text(key: Any) -> str | None:
    return None if key is None else str(key)


def _images(columns: Sequence[_Column], row: int) -> Iterator[bytes]:
    for column in columns:
        cell = column.at(row)
        for item in cell if isinstance(cell, list) else [cell]:
            try:
                data = image_bytes(item, folder=None)
            except CellError as error:
                raise CellError(error.kind, f"column {column.name!r}: {error.message}") from error
            if data is None:
                raise FieldError(f"column {column.name!r}: no image (null); an empty list says that there is none")
            yield data
