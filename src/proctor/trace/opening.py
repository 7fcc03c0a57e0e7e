"""Opens a trace: what the file is, its schema, its GPUs and processes, and what is missing from it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from proctor.rows import UserError
from proctor.trace.model import Origin
from proctor.trace.trace import Trace
from proctor.trace.views import columns_of, create_views

_SQLITE_HEADER = b"SQLite format 3\x00"


def open_trace(path: str | Path) -> Trace:
    """Opens an Nsight Systems export (``.sqlite``), a report (``.nsys-rep``) or a PyTorch-profiler trace.

    The file is never written to, and nothing is put beside it.

    Raises:
        UserError: there is no such file, or it is no trace.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError("no such file", where=str(path))
    with path.open("rb") as file:
        head = file.read(16)
    if head == _SQLITE_HEADER:
        return open_export(path, path)
    raise UserError(
        "this is no trace", where=str(path), fix="give a .sqlite, a .nsys-rep or a .json[.gz] of the PyTorch profiler"
    )


def open_export(file: Path, named: Path) -> Trace:
    """Opens an export at `file`, read-only and immutable: SQLite then takes no lock and writes no side file."""
    connection = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False)
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA trusted_schema = OFF")
    tables = create_views(connection, columns_of(connection))
    return Trace(connection, path=named, origin=Origin.NSYS, tables=tables)
