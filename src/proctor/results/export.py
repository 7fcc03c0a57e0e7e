"""Questions to the records of a run, and all of them in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from proctor.results.parts import parts_of
from proctor.results.rundir import RunDir
from proctor.rows import ErrorKind, UserError
from proctor.storage.folder import open_folder

_COPY = {"csv": "FORMAT csv, HEADER", "jsonl": "FORMAT json", "parquet": "FORMAT parquet, COMPRESSION zstd"}


def errors_of(run: RunDir, *, kind: str | None, checkpoint: str | None, limit: int) -> tuple[list[dict[str, Any]], int]:
    """Rows that ended in an error (at most `limit`), and how many there are.

    Raises:
        UserError: there is no such kind or checkpoint.
    """
    if kind is not None and kind not in set(ErrorKind):
        raise UserError(f"no error kind {kind!r}", fix=f"one of {', '.join(ErrorKind)}")
    if not _has_records(run, checkpoint):
        return [], 0
    with duckdb.connect() as connection:
        found = run.records(connection, checkpoint).filter("error_kind IS NOT NULL")
        if kind is not None:
            found = found.filter(f"error_kind = '{ErrorKind(kind).value}'")
        rows = found.select("row_id, sample_id, checkpoint, error_kind, error_message").order("row_id, checkpoint")
        names = rows.columns
        return [dict(zip(names, row, strict=True)) for row in rows.limit(limit).fetchall()], _count(found)


def export_records(run: RunDir, form: str, *, checkpoint: str | None, out: Path | None) -> tuple[int, str]:
    """Writes all records into one file (``csv``, ``jsonl`` or ``parquet``), whole or not at all.

    Args:
        run: the run.
        form: format of the file.
        checkpoint: only records of this one; None is all.
        out: the file; None is ``records.FORM`` in the run directory.

    Returns:
        How many records there are, and where they are now.

    Raises:
        UserError: there are no records, no such checkpoint, or the file cannot be written.
    """
    if not _has_records(run, checkpoint):
        raise UserError("no records yet", where=run.location)
    if out is not None and not out.parent.is_dir():
        raise UserError("no such directory", where=str(out.parent), fix="make it, or choose another --out")
    folder, name = (run.folder, f"records.{form}") if out is None else (open_folder(out.parent), out.name)
    target = f"{folder.location}/{name}"
    with duckdb.connect() as connection:
        records = run.records(connection, checkpoint).order("checkpoint, row_id")
        connection.register("records", records)
        try:
            folder.write_file(name, lambda draft: _copy(connection, draft, form))
        except (OSError, duckdb.IOException) as error:
            raise UserError(f"cannot write: {error}", where=target) from error
        return _count(records), target


def _count(records: duckdb.DuckDBPyRelation) -> int:
    return int(records.count("*").fetchall()[0][0])


def _copy(connection: duckdb.DuckDBPyConnection, draft: Path, form: str) -> None:
    name = str(draft).replace("'", "''")
    connection.execute(f"COPY (FROM records) TO '{name}' ({_COPY[form]})")


def _has_records(run: RunDir, checkpoint: str | None) -> bool:
    spec = run.spec()
    names = [c.name for c in spec.engine.checkpoints] if spec else []
    if checkpoint is not None and checkpoint not in names:
        raise UserError(f"no checkpoint {checkpoint!r} in this run", where=run.location, fix=f"one of {names}")
    return bool(parts_of(run.results, checkpoint))
