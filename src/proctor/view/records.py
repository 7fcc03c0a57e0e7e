"""The records of a run, asked in SQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb

from proctor.results import RunDir


@dataclass(frozen=True, slots=True)
class Records:
    """All records of a run as the view ``records``.

    Attributes:
        types: DuckDB type of each column, by name.
    """

    connection: duckdb.DuckDBPyConnection
    types: dict[str, str]

    def ask(self, sql: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Rows of a query as dictionaries."""
        cursor = self.connection.execute(sql, list(parameters))
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


@contextmanager
def open_records(run: RunDir) -> Iterator[Records | None]:
    """The records of `run` while the block runs; None when there are none yet."""
    with duckdb.connect() as connection:
        try:
            run.records(connection).create_view("records")
        except LookupError:
            yield None
            return
        described = connection.execute("describe records").fetchall()
        yield Records(connection, {row[0]: row[1] for row in described})
