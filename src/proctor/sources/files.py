"""The data files of a source: one file, or a directory's files in name order."""

from __future__ import annotations

import os
from pathlib import Path

from pyroaring import BitMap64

from proctor.rows import ErrorKind, Failure, UserError


def list_files(path: str | Path, suffix: str) -> tuple[Path, ...]:
    """The file at `path`, or the files of that directory whose names end in `suffix`, by name.

    Hidden files (``.name``) and sub-directories are left out; a single file may have any name.

    Raises:
        UserError: there is nothing at `path`, or no such file in it.
    """
    where = str(path)
    if "://" in where:
        raise UserError(f"*{suffix} files are read from local paths only", where=where, fix="copy or mount them first")
    path = Path(path).absolute()
    if path.is_file():
        return (path,)
    if not path.is_dir():
        raise UserError("no such file or directory", where=where)
    files = sorted(
        (entry for entry in path.iterdir() if _is_data_file(entry, suffix)), key=lambda entry: os.fsencode(entry.name)
    )
    if not files:
        raise UserError(f"the directory holds no *{suffix} files", where=where)
    return tuple(files)


def _is_data_file(entry: Path, suffix: str) -> bool:
    return entry.name.endswith(suffix) and not entry.name.startswith(".") and entry.is_file()


def ids_between(first: int, end: int) -> BitMap64:
    """The row ids ``first .. end - 1``."""
    ids = BitMap64()
    if end > first:
        ids.add_range(first, end)
    return ids


def open_failure(error: OSError) -> Failure:
    """Why a file could not be read, as a failure of each of its rows: gone for good, or something that may pass."""
    kind = ErrorKind.READ_MISSING if isinstance(error, FileNotFoundError) else ErrorKind.READ_FAILED
    return Failure(kind, os.strerror(error.errno) if error.errno else str(error))
