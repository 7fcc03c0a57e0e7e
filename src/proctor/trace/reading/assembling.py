"""From a connection to a trace: views, a survey, repairs, and what is known about the capture."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from proctor.rows import UserError
from proctor.trace.model import GraphMode, Note, Origin, Process, pid_of
from proctor.trace.reading import metadata
from proctor.trace.reading.gpus import gpus_of
from proctor.trace.reading.guard import Guard
from proctor.trace.reading.notes import Facts, notes_of
from proctor.trace.reading.survey import Survey, look
from proctor.trace.reading.sync_devices import place_syncs
from proctor.trace.trace import UNREADABLE, Trace, explained
from proctor.trace.views import VIEWS, columns_of, create_views

_STEPS = 200_000_000
_STEPS_A_PAGE = 200_000
"""A survey takes some 10,000 steps a page of rows; this ends one that would not end."""
_SIGNS = {"META_DATA_EXPORT", "META_DATA_CAPTURE", "EXPORT_META_DATA", "TARGET_INFO_SESSION_START_TIME"}


def assemble(
    connection: sqlite3.Connection,
    *,
    path: Path,
    origin: Origin,
    keep: Callable[[Callable[[], Survey]], Survey] = lambda make: make(),
    notes: Sequence[Note] = (),
    tool: str = "",
    graph_mode: GraphMode = GraphMode.UNKNOWN,
) -> Trace:
    """Makes the trace of a connection, which is closed if that fails.

    Args:
        connection: its main database has tables of Nsight Systems' layout.
        path: the file the user named.
        origin: what wrote it.
        keep: runs the survey, or returns what it found last time.
        notes: what is known already, to put before what is found here.
        tool: what wrote it, where the database does not say.
        graph_mode: likewise.

    Raises:
        UserError: the database is damaged, or no export.
    """
    guard: Guard | None = None
    try:
        guard = Guard(connection)
        guard.allow(_STEPS + _STEPS_A_PAGE * int(connection.execute("PRAGMA main.page_count").fetchone()[0]))
        columns = columns_of(connection)
        tables = _tables(connection, columns, path)
        survey = keep(lambda: look(connection, tables))
        create_views(connection, columns, survey.repairs())
        place_syncs(connection)
        facts = _facts(connection, columns, tables, survey, origin, graph_mode)
        return Trace(
            connection,
            path=path,
            origin=origin,
            tables=tables,
            schema=facts.schema,
            tool=tool or metadata.tool_of(connection, columns),
            gpus=facts.gpus,
            processes=_processes(connection, survey),
            graph_mode=facts.graph_mode,
            driver=metadata.driver_of(connection, columns),
            window=survey.window,
            notes=[*notes, *notes_of(facts)],
        )
    except UNREADABLE as error:
        connection.close()
        raise explained(error, path, guard) from error
    except BaseException:
        connection.close()
        raise


def _tables(connection: sqlite3.Connection, columns: Mapping[str, list[str]], path: Path) -> dict[str, str | None]:
    tables = create_views(connection, columns)
    if not _SIGNS & columns.keys() and not any(tables.values()):
        raise UserError(
            "a SQLite database, but no export of Nsight Systems: it has none of its tables",
            where=str(path),
            fix="make one with `nsys export --type sqlite`",
        )
    return tables


def _facts(
    connection: sqlite3.Connection,
    columns: Mapping[str, list[str]],
    tables: Mapping[str, str | None],
    survey: Survey,
    origin: Origin,
    graph_mode: GraphMode,
) -> Facts:
    nsys = origin is Origin.NSYS
    source = "TARGET_INFO_GPU" if nsys else "deviceProperties"
    return Facts(
        origin=origin,
        survey=survey,
        schema=metadata.schema_of(connection, columns) if nsys else None,
        graph_mode=metadata.graph_mode_of(connection, columns) if nsys else graph_mode,
        gpus=gpus_of(connection, columns, survey.processes, survey.used, source=source),
        diagnostics=metadata.diagnostics_of(connection, columns),
        session=metadata.session_of(connection, columns),
        foreign=_foreign(connection),
        unread=_unread(connection, tables),
    )


def _processes(connection: sqlite3.Connection, survey: Survey) -> list[Process]:
    names: dict[int, str] = {}
    wanted = set(survey.processes)
    for process, name in connection.execute("SELECT process, name FROM processes LIMIT 100000"):
        if process in wanted:
            names.setdefault(process, str(name or "")[:400])
    return [Process(process, pid_of(process), names.get(process, "")) for process in survey.processes]


def _foreign(connection: sqlite3.Connection) -> list[str]:
    """Names of indexes, triggers, views and underscored tables: no export has any."""
    sql = (
        "SELECT name FROM main.sqlite_master WHERE (type <> 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\') "
        "OR name GLOB '_*' ORDER BY name LIMIT 1000"
    )
    return [str(name)[:100] for (name,) in connection.execute(sql)]


def _unread(connection: sqlite3.Connection, tables: Mapping[str, str | None]) -> list[str]:
    """Tables of the model that the file has in a form that is not read."""
    absent = {view.table for name, view in VIEWS.items() if tables[name] is None}
    entries = connection.execute("SELECT name FROM main.sqlite_master WHERE type IN ('view', 'table') LIMIT 100000")
    return sorted(str(name) for (name,) in entries if re.sub(r"_V\d+$", "", str(name)) in absent)
