"""The records of a run as a table in DuckDB, which reads nothing but the parts of the run."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb

from proctor.results import RunDir
from proctor.rows import UserError
from proctor.rows.text import line_of
from proctor.storage.lease import seems_held
from proctor.view.browse.filters import Columns
from proctor.view.browse.rows.database import MEMORY, PART, PLACE, confined, lay, records_in
from proctor.view.browse.rows.index import LEAST_ROWS, TABLE, Index
from proctor.view.browse.rows.parts import Part, Parts, nearest, read_parts
from proctor.view.browse.rows.patience import Patience

_NEEDED = {"row_id": "BIGINT", "checkpoint": "VARCHAR"}
_KEYLESS = "select count(*) from records where row_id is null or checkpoint is null"
_MEMORY_OF_LARGE = "200MB"
"""A large run has its index, so that less has to be looked through."""
_MEMORY_OF_ORDERED = "220MB"
_DOES_NOT_FIT = "the parts do not fit together"


@dataclass(frozen=True, slots=True)
class RowTable:
    """All readable records as the view ``records``. It may be used by several threads at once.

    Attributes:
        columns: what a filter may name.
        files: what is read; those that cannot be are in its `damaged`, and their rows are not in the table.
        scratch: a directory of its own, for exports.
        index: of a large run that is not under way.
        patience: of the request that this is for; without one each question has a time limit of its own.
        counted: how many rows there are, by filter and search, as far as that was asked: the records do not change.
    """

    connection: duckdb.DuckDBPyConnection
    columns: Columns
    files: Parts
    scratch: Path
    where: str
    index: Index | None = None
    patience: Patience | None = None
    counted: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """How many records there are."""
        return self.files.rows

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the files that are read."""
        return tuple(self.files.found)

    @property
    def damaged(self) -> tuple[tuple[str, str], ...]:
        """Files that cannot be read, each with the reason: their rows are not in the table."""
        return tuple(self.files.damaged.items())

    def within(self, patience: Patience) -> RowTable:
        """The same table for one request."""
        return replace(self, patience=patience)

    def ask(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a query.

        Raises:
            UserError: the database cannot answer: a file changed under it, memory does not suffice, or it takes too
                long.
        """
        with self.told(), self.connection.cursor() as cursor, (self.patience or Patience()).over(cursor):
            return cursor.execute(sql, list(parameters)).fetchall()

    def having(self, names: Collection[str]) -> str:
        """Where rows are looked for by some columns alone, as a table in SQL."""
        return TABLE if self.index is not None and self.index.has(names) else "records"

    def holding(self, row_ids: Sequence[int]) -> str:
        """The records of the parts that may hold some rows, as a table in SQL."""
        found = self.files.found.values()
        return self.of([part for part in found if any(part.first <= row_id <= part.last for row_id in row_ids)])

    def next_to(self, row_id: int | None, most: int, *, falling: bool) -> str:
        """The records of the parts that hold the next rows by row id (see `nearest`), as a table in SQL."""
        return self.of(nearest(list(self.files.found.values()), row_id, most, falling=falling))

    def of(self, parts: Sequence[Part]) -> str:
        """The records of some parts, as a table in SQL."""
        return records_in(parts, self.files)

    @contextmanager
    def apart(self) -> Iterator[RowTable]:
        """The same records in a database that writes many of them in order: one thread, so that little memory
        suffices."""
        scratch = str(self.scratch)
        with _laid(scratch, ":memory:", self.files, self.where, _MEMORY_OF_ORDERED, threads=1) as base:
            yield replace(self, connection=base, index=None)

    @contextmanager
    def told(self) -> Iterator[None]:
        """What the database cannot do is told in one line."""
        try:
            yield
        except duckdb.Error as error:
            raise UserError(f"the records cannot be read: {_first_line(error)}", where=self.where) from error


@contextmanager
def open_rows(run: RunDir) -> Iterator[RowTable]:
    """The records of `run`, as they are now, while the block runs. A run without records has an empty table.

    Symbolic links among the parts are not followed. Nothing outside the results can be read through the table. A large
    run gets an index, unless it is under way: each part that comes would mean another.

    Raises:
        UserError: the parts do not fit together, or hold no records.
        OSError: storage failed.
    """
    parts, where = read_parts(run), run.results.location
    large = parts.rows >= LEAST_ROWS and not seems_held(run.folder)
    with tempfile.TemporaryDirectory(prefix="proctor-view-") as folder:
        name = f"{folder}/rows.duckdb" if large else ":memory:"
        with _laid(folder, name, parts, where, _MEMORY_OF_LARGE if large else MEMORY) as base:
            columns = _columns(base, parts, where)
            index = Index(base.cursor(), columns, (f'"{PART}"', f'"{PLACE}"')) if large else None
            with nullcontext() if index is None else closing(index.start()):
                yield RowTable(base, columns, parts, Path(folder), where, index)


@contextmanager
def _laid(
    scratch: str, name: str, parts: Parts, where: str, memory: str, threads: int = 2
) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(name, config=confined(scratch, memory=memory, threads=threads)) as base:
        try:
            lay(base, parts, scratch)
        except duckdb.Error as error:
            raise UserError(f"{_DOES_NOT_FIT}: {_first_line(error)}", where=where) from error
        yield base


def _columns(base: duckdb.DuckDBPyConnection, parts: Parts, where: str) -> Columns:
    try:
        types = {row[0]: row[1] for row in base.execute("describe records").fetchall()}
        lacking = [name for name, kind in _NEEDED.items() if types.get(name) != kind]
        sure = not lacking and all(part.keyed for part in parts.found.values())
        nobody = 0 if lacking or sure else base.execute(_KEYLESS).fetchall()[0][0]
    except duckdb.Error as error:
        raise UserError(f"{_DOES_NOT_FIT}: {_first_line(error)}", where=where) from error
    if nobody:
        raise UserError(f"{nobody:,} records are of no row or of no checkpoint", where=where)
    if lacking:
        raise UserError(f"these are no records: {', '.join(lacking)} is not there, or of another type", where=where)
    return Columns({name: kind for name, kind in types.items() if name not in (PART, PLACE)})


def _first_line(error: duckdb.Error) -> str:
    return line_of((str(error).splitlines() or [""])[0])
