"""The records of a run as a table in DuckDB, which reads nothing but the parts of the run."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from proctor.results import RunDir
from proctor.results.parts import is_damage, parts_of
from proctor.rows import UserError
from proctor.rows.text import line_of
from proctor.storage.folder import LocalFolder
from proctor.view.browse.filters import Columns, Condition

PART, PLACE = "proctor part", "proctor place"
"""Columns of the view beside those of the records: the file of a record, and its number in it."""
_NEEDED = {"row_id": "BIGINT", "checkpoint": "VARCHAR"}
_KEYLESS = "select count(*) from records where row_id is null or checkpoint is null"
_RANGE = re.compile(r"-(\d{10,19})-(\d{10,19})-[0-9a-f]{16}\.(?:tombstone\.)?parquet$")
_MEMORY = "300MB"
_SPILL = "20GB"


@dataclass(frozen=True, slots=True)
class RowTable:
    """All readable records as the view ``records``. It may be used by several threads at once.

    Attributes:
        columns: what a filter may name.
        total: how many records there are.
        parts: names of the files that are read.
        damaged: files that cannot be read, each with the reason: their rows are not in the table.
        scratch: a directory of its own, for exports.
    """

    connection: duckdb.DuckDBPyConnection
    columns: Columns
    total: int
    parts: tuple[str, ...]
    damaged: tuple[tuple[str, str], ...]
    scratch: Path
    where: str

    def ask(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a query.

        Raises:
            UserError: the database cannot answer: a file changed under it, or memory does not suffice.
        """
        with self.told(), self.connection.cursor() as cursor:
            return cursor.execute(sql, list(parameters)).fetchall()

    def holding(self, row_ids: Sequence[int]) -> Condition:
        """The parts that may hold some rows, by their names, which tell the first and the last id in each."""
        names = [part for part in self.parts if _may_hold(part, row_ids)]
        marks = ", ".join("?" for _ in names)
        return Condition(f'"{PART}" in ({marks})' if names else "false", names)

    @contextmanager
    def told(self) -> Iterator[None]:
        """What the database cannot do is told in one line."""
        try:
            yield
        except duckdb.Error as error:
            first = (str(error).splitlines() or [""])[0]
            raise UserError(f"the records cannot be read: {line_of(first)}", where=self.where) from error


@contextmanager
def open_rows(run: RunDir) -> Iterator[RowTable]:
    """The records of `run`, as they are now, while the block runs. A run without records has an empty table.

    Symbolic links among the parts are not followed. Nothing outside the results can be read through the table.

    Raises:
        UserError: the parts do not fit together, or hold no records.
        OSError: storage failed.
    """
    parts, damaged = _readable(run)
    where = run.results.location
    with (
        tempfile.TemporaryDirectory(prefix="proctor-view-") as folder,
        duckdb.connect(config=confined(folder)) as base,
    ):
        try:
            _lay(base, [part.path for part in parts.values()], folder, alike=_are_alike(parts))
            types = {row[0]: row[1] for row in base.execute("describe records").fetchall()}
            lacking = [name for name, kind in _NEEDED.items() if types.get(name) != kind]
            nobody = 0 if lacking else base.execute(_KEYLESS).fetchall()[0][0]
        except duckdb.Error as error:
            first = (str(error).splitlines() or [""])[0]
            raise UserError(f"the parts do not fit together: {line_of(first)}", where=where) from error
        if nobody:
            raise UserError(f"{nobody:,} records are of no row or of no checkpoint", where=where)
        if lacking:
            raise UserError(f"these are no records: {', '.join(lacking)} is not there, or of another type", where=where)
        columns = Columns({name: kind for name, kind in types.items() if name not in (PART, PLACE)})
        total = sum(part.footer.num_rows for part in parts.values())
        yield RowTable(base, columns, total, tuple(parts), tuple(damaged.items()), Path(folder), where)


def confined(folder: str) -> dict[str, Any]:
    """Settings of a database with little memory, which spills into `folder` and brings nothing in by itself."""
    return {
        "memory_limit": _MEMORY,
        "threads": 2,
        "temp_directory": folder,
        "max_temp_directory_size": _SPILL,
        "preserve_insertion_order": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,
    }


class _Part(NamedTuple):
    path: Path
    footer: pq.FileMetaData


def _readable(run: RunDir) -> tuple[dict[str, _Part], dict[str, str]]:
    """Local files of the parts by name, and why others are left out."""
    names, damaged, readable = parts_of(run.results), dict[str, str](), dict[str, _Part]()
    for name, path in zip(names, run.results.local_copies(names), strict=True):
        if isinstance(run.results, LocalFolder) and path.is_symlink():
            damaged[name] = "a symbolic link, which is not followed"
            continue
        try:
            readable[name] = _Part(path, pq.read_metadata(path))
        except FileNotFoundError:
            continue  # taken away since it was listed: a run under way replaces tombstones
        except (OSError, pa.ArrowInvalid) as error:
            if not is_damage(error):
                raise
            damaged[name] = f"damaged: {line_of(str(error))}"
    return readable, damaged


def _are_alike(parts: dict[str, _Part]) -> bool:
    """Whether all parts have the same columns, as those of a run do: then only one footer tells them."""
    schemas = [part.footer.schema for part in parts.values()]
    return all(schema.equals(schemas[0]) for schema in schemas[1:])


def _lay(base: duckdb.DuckDBPyConnection, paths: list[Path], scratch: str, *, alike: bool) -> None:
    base.execute("set enable_progress_bar = false")
    base.execute("set TimeZone = 'UTC'")
    base.execute("set parquet_metadata_cache = true")
    folders = ", ".join(_text(str(folder)) for folder in sorted({str(path.parent) for path in paths} | {scratch}))
    base.execute(f"set allowed_directories = [{folders}]")
    base.execute("set enable_external_access = false")
    base.execute("set lock_configuration = true")
    if not paths:
        base.execute("create table none (row_id bigint, checkpoint varchar, error_kind varchar)")
        base.execute(f'create view records as select *, \'\' as "{PART}", 0::bigint as "{PLACE}" from none')
        return
    files = ", ".join(_text(str(path)) for path in paths)
    base.execute(
        f'create view records as select * replace (parse_filename("{PART}") as "{PART}"), file_row_number as "{PLACE}" '
        f"from read_parquet([{files}], union_by_name = {str(not alike).lower()}, filename = '{PART}')"
    )


def _may_hold(part: str, row_ids: Sequence[int]) -> bool:
    found = _RANGE.search(part)
    return found is None or any(int(found[1]) <= row_id <= int(found[2]) for row_id in row_ids)


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
