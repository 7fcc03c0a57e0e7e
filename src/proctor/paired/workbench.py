"""Where records of several sides lie side by side in DuckDB: on disk, so that memory does not grow with the rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from proctor.paired.sides import Side
from proctor.results.parts import TOMBSTONE_SUFFIX
from proctor.rows import UserError

_MEMORY = "400MB"
_SPILL = "50GB"
_NEEDED = ("row_id", "checkpoint", "sample_id", "answer", "error_kind", "parse_error", "target")
_PLACES = ("filename", "file_row_number")
STONE = f"ends_with(filename, '{TOMBSTONE_SUFFIX}')"
"""SQL: whether a record is a tombstone."""
_FIRST = f"qualify row_number() over (partition by row_id order by {STONE}, filename, file_row_number) = 1"


@dataclass(slots=True)
class Workbench:
    """A DuckDB with the records of each side as a view, each key once.

    Attributes:
        duplicates: for each view, how many records beyond the first of their key it leaves out.
    """

    connection: duckdb.DuckDBPyConnection
    duplicates: dict[str, int] = field(default_factory=dict)

    def ask(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Rows of a query."""
        return self.connection.execute(sql, list(parameters)).fetchall()

    def one(self, sql: str, *parameters: Any) -> tuple[Any, ...]:
        """The only row of a query."""
        (row,) = self.ask(sql, *parameters)
        return row

    def clear(self, view: str) -> None:
        """Takes a view of `lay` away."""
        for name in (view, f"raw_{view}"):
            self.connection.execute(f"drop view if exists {name}")

    def lay(self, side: Side, view: str, keep: BitMap64 | None = None) -> dict[str, str]:
        """Makes `view` of a side's records and gives the DuckDB type of each column, by name.

        A record that comes later in the order of the parts gives way to one with the same key, and a tombstone to a
        final record, as when a run is resumed.

        Args:
            side: whose records.
            view: its name.
            keep: ids of the rows to keep to; None is for all that there are.

        Raises:
            UserError: there are no records, a part is damaged, or it does not hold records of this checkpoint.
        """
        raw = f"raw_{view}"
        with told_of(side):
            try:
                side.run.records(self.connection, side.checkpoint, places=True).create_view(raw)
            except LookupError:
                raise UserError(
                    f"no records of {side.checkpoint} yet", where=side.run.location, fix="start it with `proctor run`"
                ) from None
            types = {row[0]: row[1] for row in self.ask(f"describe {raw}")}
            self._check(side, raw, types)
            kept = self._kept(raw, keep)
            count, keys = self.one(f"select count(*), count(distinct row_id) from {kept}")
            self.duplicates[view] = count - keys
            once = _FIRST if count > keys else ""
            self.connection.execute(f"create view {view} as select * from {kept} {once}")
        return {name: kind for name, kind in types.items() if name not in _PLACES}

    def _kept(self, raw: str, keep: BitMap64 | None) -> str:
        """The records of some rows, or all, as SQL that stands behind ``from``."""
        if keep is None:
            return raw
        ids = pa.table({"row_id": np.fromiter(keep, np.int64, len(keep))})
        self.connection.register("ids_kept", ids)
        self.connection.execute(f"create or replace table kept_{raw} as select row_id from ids_kept")
        self.connection.unregister("ids_kept")
        return f"(from {raw} semi join kept_{raw} using (row_id))"

    def _check(self, side: Side, raw: str, types: dict[str, str]) -> None:
        lacking = [name for name in _NEEDED if name not in types]
        where = side.run.results.location
        if lacking or types["row_id"] != "BIGINT":
            what = f"lack {', '.join(lacking)}" if lacking else "have row ids that are no whole numbers"
            raise UserError(f"the records of {side.checkpoint} {what}", where=where, fix="resume the run")
        sql = f"select count(*) from {raw} where checkpoint is distinct from ? or row_id is null"
        (strange,) = self.one(sql, side.checkpoint)
        if strange:
            raise UserError(
                f"{strange:,} records in the parts of {side.checkpoint} are of another checkpoint or of no row",
                where=where,
                fix="resume the run: it puts such parts aside and runs their rows again",
            )


@contextmanager
def workbench(memory: str = _MEMORY, threads: int | None = None) -> Iterator[Workbench]:
    """A workbench in a directory of its own, removed at the end.

    Args:
        memory: most that DuckDB takes of it, e.g. ``400MB``.
        threads: how many it works with; None is for one each core.

    Raises:
        UserError: there is no room for it.
    """
    with tempfile.TemporaryDirectory(prefix="proctor-compare-") as folder:
        settings: dict[str, Any] = {
            "memory_limit": memory,
            "max_temp_directory_size": _SPILL,
            "preserve_insertion_order": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,
        } | ({} if threads is None else {"threads": threads})
        try:
            with duckdb.connect(str(Path(folder) / "compare.duckdb"), config=settings) as connection:
                yield Workbench(connection)
        except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
            what = f"cannot be worked out here: {str(error).splitlines()[0]}"
            raise UserError(what, where=folder, fix="point TMPDIR to a disk with room") from error


@contextmanager
def told_of(side: Side) -> Iterator[None]:
    """What DuckDB does not understand of a side's records is a mistake in that directory."""
    try:
        yield
    except duckdb.Error as error:
        first = str(error).splitlines()[0]
        raise UserError(f"the records cannot be read: {first}", where=side.run.results.location) from error
