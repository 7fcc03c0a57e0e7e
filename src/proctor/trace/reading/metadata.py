"""What an export says about itself: schema, tool, how CUDA graphs were captured, how long the session was.

Only the rows asked for are read. Those that hold the environment of the profiled process are never among them: public
captures carry access tokens there.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection
from typing import NamedTuple

from proctor.trace.model import GraphMode, Schema

OLDEST = Schema(2, 9, 1)
"""Of Nsight Systems 2022.1, the oldest export examined."""
NEWEST = Schema(3, 25, 0)
"""Of Nsight Systems 2026.2, the newest export examined."""
_EXPORT_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA")  # from schema 3.4.0; up to 3.1.7
_CAPTURE_TABLES = ("META_DATA_CAPTURE", "EXPORT_META_DATA")
_LONGEST_TOOL = 120


class Session(NamedTuple):
    """The profiler's own account of a session.

    Attributes:
        duration_ns: how long it ran; None where the export does not say.
        utc_ns: nanoseconds since 1970 at the trace's time zero; None where it does not say.
    """

    duration_ns: int | None = None
    utc_ns: int | None = None


class Diagnostic(NamedTuple):
    """A message of the profiler about the capture: severity 1 informs, 2 warns, 3 is an error."""

    severity: int
    text: str


def schema_of(connection: sqlite3.Connection, tables: Collection[str]) -> Schema | None:
    """The version of the export's schema; None where the export does not say one that can be understood."""
    whole = _value(connection, tables, _EXPORT_TABLES, "EXPORT_SCHEMA_VERSION") or ""
    match = re.match(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?", whole.strip())
    if match:
        return Schema(int(match[1]), int(match[2]), int(match[3] or 0))
    parts = [
        _value(connection, tables, _EXPORT_TABLES, f"EXPORT_SCHEMA_VERSION_{part}")
        for part in ("MAJOR", "MINOR", "MICRO")
    ]
    if all(part is not None and re.fullmatch(r"\d{1,9}", part) for part in parts):
        return Schema(*(int(part or 0) for part in parts))
    return None


def tool_of(connection: sqlite3.Connection, tables: Collection[str]) -> str:
    """What wrote the export, e.g. ``NVIDIA Nsight Systems 2026.2.1.210``."""
    name = _value(connection, tables, _EXPORT_TABLES, "EXPORT_PRODUCT_NAME") or "Nsight Systems"
    version = _value(connection, tables, _EXPORT_TABLES, "EXPORT_PRODUCT_VERSION") or "of an unknown version"
    return f"{name} {version}"[:_LONGEST_TOOL]


def driver_of(connection: sqlite3.Connection, tables: Collection[str]) -> str:
    """The version of the GPU's driver; empty where the export does not say. No other row of that table is read."""
    value = _value(connection, tables, ("TARGET_INFO_SYSTEM_ENV",), "NvDriverVersion") or ""
    return value if re.fullmatch(r"[\w.+-]{1,40}", value) else ""


def graph_mode_of(connection: sqlite3.Connection, tables: Collection[str]) -> GraphMode:
    """How CUDA graphs were captured. The key may carry the prefix of a process; one process in graph mode decides."""
    modes: set[str] = set()
    for table in _CAPTURE_TABLES:
        if table in tables:
            sql = f"SELECT DISTINCT value FROM main.{table} WHERE name = ?1 OR name GLOB '*:' || ?1 LIMIT 100"
            rows = connection.execute(sql, ("CUDA_GRAPH_TRACE_OPTIONS:MODE",))
            modes.update(str(value).lower() for (value,) in rows)
    known = [mode for mode in (GraphMode.GRAPH, GraphMode.NODE) if mode.value in modes]
    return known[0] if known else GraphMode.UNKNOWN


def session_of(connection: sqlite3.Connection, tables: Collection[str]) -> Session:
    """How long the session was and when it began."""
    duration = _first(connection, tables, "ANALYSIS_DETAILS", "duration")
    utc = _first(connection, tables, "TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
    return Session(duration, utc)


def diagnostics_of(connection: sqlite3.Connection, tables: Collection[str]) -> list[Diagnostic]:
    """Warnings and errors of the profiler, worst first, each once; at most a hundred."""
    if "DIAGNOSTIC_EVENT" not in tables:
        return []
    sql = (
        "SELECT DISTINCT severity, text FROM diagnostics "
        "WHERE typeof(severity) = 'integer' AND severity BETWEEN 1 AND 3 ORDER BY severity DESC LIMIT 100"
    )
    return [Diagnostic(severity, " ".join(str(text).split())[:400]) for severity, text in connection.execute(sql)]


def _value(
    connection: sqlite3.Connection, tables: Collection[str], candidates: tuple[str, ...], name: str
) -> str | None:
    for table in candidates:
        if table in tables:
            row = connection.execute(f"SELECT value FROM main.{table} WHERE name = ? LIMIT 1", (name,)).fetchone()
            if row is not None and row[0] is not None:
                return str(row[0])
    return None


def _first(connection: sqlite3.Connection, tables: Collection[str], table: str, column: str) -> int | None:
    if table not in tables:
        return None
    try:
        row = connection.execute(f"SELECT {column} FROM main.{table} LIMIT 1").fetchone()
    except sqlite3.OperationalError:  # the column is not in this version
        return None
    return row[0] if row is not None and isinstance(row[0], int) else None
