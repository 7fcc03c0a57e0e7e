"""Databases that read the parts of one run and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import duckdb

from proctor.view.browse.rows.parts import Part, Parts

PART, PLACE = "proctor part", "proctor place"
"""Columns of the view beside those of the records: the file of a record, and its number in it."""
MEMORY = "300MB"
_SPILL = "20GB"


def confined(folder: str, *, memory: str = MEMORY, threads: int = 2) -> dict[str, Any]:
    """Settings of a database with little memory, which spills into `folder` and brings nothing in by itself."""
    return {
        "memory_limit": memory,
        "threads": threads,
        "temp_directory": folder,
        "max_temp_directory_size": _SPILL,
        "preserve_insertion_order": threads == 1,  # costs memory where several threads have to wait for one another
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,
    }


def lay(base: duckdb.DuckDBPyConnection, parts: Parts, scratch: str) -> None:
    """Makes the view ``records`` over all parts, and shuts everything else but `scratch` off.

    Raises:
        duckdb.Error: the parts do not fit together.
    """
    base.execute("set enable_progress_bar = false")
    base.execute("set TimeZone = 'UTC'")
    base.execute("set parquet_metadata_cache = true")
    own = {str(part.path.parent) for part in parts.found.values()} | {scratch}
    base.execute(f"set allowed_directories = [{', '.join(text(folder) for folder in sorted(own))}]")
    base.execute("set enable_external_access = false")
    base.execute("set lock_configuration = true")
    if not parts.found:
        base.execute("create table none (row_id bigint, checkpoint varchar, error_kind varchar)")
        base.execute(f'create view records as select *, \'\' as "{PART}", 0::bigint as "{PLACE}" from none')
        return
    paths = [part.path for part in parts.found.values()]
    base.execute(f"create view records as {_selected(paths, alike=parts.alike)}")


def records_in(parts: Sequence[Part], among: Parts) -> str:
    """The records of some parts, as a table in SQL: only these files are opened, where that makes no difference."""
    if not parts or len(parts) == len(among.found):
        return "records" if parts else "(select * from records where false)"
    if among.alike:
        return f"({_selected([part.path for part in parts], alike=True)})"
    names = ", ".join(text(part.name) for part in parts)
    return f'(select * from records where "{PART}" in ({names}))'


def text(value: str) -> str:
    """A text in SQL."""
    return "'" + value.replace("'", "''") + "'"


def _selected(paths: Iterable[Path], *, alike: bool) -> str:
    files = ", ".join(text(str(path)) for path in paths)
    return (
        f'select * replace (parse_filename("{PART}") as "{PART}"), file_row_number as "{PLACE}" '
        f"from read_parquet([{files}], union_by_name = {str(not alike).lower()}, filename = '{PART}')"
    )
