"""One model over every export: named views with the same columns, whatever tables and columns the file has.

A view over a table that is not there is empty; a column that is not there is NULL. Times are nanoseconds on the trace's
own clock. ``process`` is ``globalPid``, ``thread`` is ``globalTid``; names are ids into ``strings``, since joining text
is what makes the usual queries slow. A launch and its API call are joined on correlation id *and* process:
``calls.correlation = kernels.correlation AND calls.process = kernels.process``.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from typing import NamedTuple

_PROCESS_OF_THREAD = 0xFFFFFF
_MOST_TABLES = 2000
"""Far more than any export has (179 were seen): a database with more is made to take long."""


_ORDINARY = re.compile(r"create\s+table\b", re.IGNORECASE)
_NO_ROW_IDS = re.compile(r"\)[^)'\"]*\bwithout\s+rowid\b[^)]*$", re.IGNORECASE)


class _View(NamedTuple):
    table: str
    columns: dict[str, str]


_PLACE = {
    "start": "start",
    "end": '"end"',
    "device": "deviceId",
    "context": "contextId",
    "stream": "streamId",
    "process": "globalPid",
    "correlation": "correlationId",
}

VIEWS: dict[str, _View] = {
    "strings": _View("StringIds", {"id": "id", "text": "value"}),
    "kernels": _View(
        "CUPTI_ACTIVITY_KIND_KERNEL",
        {
            **_PLACE,
            "name": "demangledName",
            "short": "shortName",
            "mangled": "mangledName",
            "grid_x": "gridX",
            "grid_y": "gridY",
            "grid_z": "gridZ",
            "block_x": "blockX",
            "block_y": "blockY",
            "block_z": "blockZ",
            "registers": "registersPerThread",
            "static_shared": "staticSharedMemory",
            "dynamic_shared": "dynamicSharedMemory",
            "shared_executed": "sharedMemoryExecuted",
            "local_per_thread": "localMemoryPerThread",
            "launch_type": "launchType",
            "green_context": "greenContextId",
            "graph": "graphId",
            "graph_node": "graphNodeId",
            "cluster_x": "clusterX",
            "cluster_y": "clusterY",
            "cluster_z": "clusterZ",
            "max_active_clusters": "maxActiveClusters",
            "reported_occupancy": "reportedOccupancy",  # Kineto's own estimate, in percent; nsys gives none
        },
    ),
    "copies": _View(
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        {
            **_PLACE,
            "bytes": "bytes",
            "kind": "copyKind",
            "source_kind": "srcKind",
            "target_kind": "dstKind",
            "source_device": "srcDeviceId",
            "target_device": "dstDeviceId",
            "graph_node": "graphNodeId",
            "merged": "copyCount",
        },
    ),
    "memsets": _View(
        "CUPTI_ACTIVITY_KIND_MEMSET",
        {**_PLACE, "value": "value", "bytes": "bytes", "memory_kind": "memKind", "graph_node": "graphNodeId"},
    ),
    "syncs": _View("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", {**_PLACE, "kind": "syncType", "event": "eventId"}),
    "graphs": _View(
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        {
            **_PLACE,
            # 0 means that the time could not be collected (CUPTI, CUpti_ActivityGraphTrace2)
            "start": """iif("end" = 0, NULL, start)""",
            "end": """nullif("end", 0)""",
            "graph": "graphId",
            "graph_execution": "graphExecId",
        },
    ),
    "calls": _View(
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        {
            "start": "start",
            "end": '"end"',
            "thread": "globalTid",
            "process": f"globalTid & ~{_PROCESS_OF_THREAD}",
            "correlation": "correlationId",
            "name": "nameId",
            "result": "returnValue",
        },
    ),
    "os_calls": _View(
        "OSRT_API",
        {
            "start": "start",
            "end": '"end"',
            "thread": "globalTid",
            "process": f"globalTid & ~{_PROCESS_OF_THREAD}",
            "name": "nameId",
        },
    ),
    "annotations": _View(
        "NVTX_EVENTS",
        {
            "start": "start",
            "end": '"end"',
            "kind": "eventType",
            "thread": "globalTid",
            "end_thread": "endGlobalTid",
            "process": f"globalTid & ~{_PROCESS_OF_THREAD}",
            "text": "text",
            "text_id": "textId",
            "domain": "domainId",
            "category": "category",
            "range_id": "rangeId",
        },
    ),
    "processes": _View("PROCESSES", {"process": "globalPid", "pid": "pid", "name": "name"}),
    "threads": _View("ThreadNames", {"thread": "globalTid", "name": "nameId"}),
    "streams": _View(
        "TARGET_INFO_CUDA_STREAM",
        {"stream": "streamId", "pid": "processId", "context": "contextId", "priority": "priority", "flag": "flag"},
    ),
    "contexts": _View(
        "TARGET_INFO_CUDA_CONTEXT_INFO",
        {"null_stream": "nullStreamId", "pid": "processId", "device": "deviceId", "context": "contextId"},
    ),
    "null_streams": _View(
        "TARGET_INFO_CUDA_NULL_STREAM",
        {"stream": "streamId", "pid": "processId", "device": "deviceId", "context": "contextId"},
    ),
    "diagnostics": _View(
        "DIAGNOSTIC_EVENT", {"time": "timestamp", "severity": "severity", "text": "text", "process": "globalPid"}
    ),
}
"""The model. ``annotations`` are NVTX rows of every kind; its text is ``COALESCE(text, strings.text of text_id)``."""

NULL_STREAM_FLAG = 3
"""``streams.flag`` of a context's null (default) stream; source: ``ENUM_CUPTI_STREAM_TYPE``."""

PUSH_POP, START_END, MARK = 59, 60, 34
"""``annotations.kind``: nested ranges of a thread, ranges between any two points, single moments."""


class Repair(NamedTuple):
    """What a view must do because of what its table holds.

    Attributes:
        only: a condition over the view's columns that rows must meet; empty for all.
        process: ``globalPid`` to put where the table has none.
    """

    only: str = ""
    process: int | None = None


def columns_of(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """The ordinary tables of the file with their stored columns, by name.

    A view, a virtual table or a computed column would run what the file's author wrote: they are left out. So is a
    table without row ids, which no export has.

    Raises:
        sqlite3.DatabaseError: the file is damaged, or no database.
    """
    entries = connection.execute("SELECT name, sql FROM main.sqlite_master WHERE type = 'table'").fetchall()
    names = [str(name) for name, sql in entries if _ORDINARY.match(str(sql)) and not _NO_ROW_IDS.search(str(sql))]
    return {
        name: [str(row[1]) for row in connection.execute(f"PRAGMA main.table_info({quoted(name)})")]
        for name in names[:_MOST_TABLES]
    }


def create_views(
    connection: sqlite3.Connection, tables: Mapping[str, list[str]], repairs: Mapping[str, Repair] | None = None
) -> dict[str, str | None]:
    """Creates the model's views in the connection's temporary schema: nothing is written to the file.

    Args:
        connection: to the trace.
        tables: from `columns_of`.
        repairs: for views that exist already and are to be made anew; only those are touched.

    Returns:
        The table under each view; None where the file has none.
    """
    found: dict[str, str | None] = {}
    for name in VIEWS if repairs is None else repairs:
        found[name] = _table(VIEWS[name].table, tables)
        if repairs is not None:
            connection.execute(f"DROP VIEW temp.{quoted(name)}")
        select = _select(name, found[name], tables, (repairs or {}).get(name, Repair()))
        connection.execute(f"CREATE TEMP VIEW {quoted(name)} AS {select}")
    return found


def _select(name: str, table: str | None, tables: Mapping[str, list[str]], repair: Repair) -> str:
    have = {"rowid", *(column.lower() for column in tables[table])} if table else set()
    expressions = {
        alias: expression if _columns(expression) <= have else "NULL"
        for alias, expression in {"id": "rowid", **VIEWS[name].columns}.items()
    }
    if repair.process is not None:
        given = expressions["process"]
        expressions["process"] = f"iif(typeof({given}) = 'integer', {given}, {repair.process})"
    columns = ", ".join(f"{expression} AS {quoted(alias)}" for alias, expression in expressions.items())
    if table is None:
        return f"SELECT {columns} WHERE 0"
    return f"SELECT {columns} FROM main.{quoted(table)}" + (f" WHERE {repair.only}" if repair.only else "")


def quoted(name: str) -> str:
    """`name` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _columns(expression: str) -> set[str]:
    """The columns that an expression needs, in lower case."""
    words = re.findall(r"\b([a-z_]\w*)\b(?!\()", expression.lower())
    return set(words) - {"null"}


def _table(wanted: str, tables: Mapping[str, list[str]]) -> str | None:
    """The table of that name, or the highest of its numbered versions (``..._KERNEL_V3``)."""
    if wanted in tables:
        return wanted
    versions = [(int(match[1]), name) for name in tables if (match := re.fullmatch(rf"{wanted}_V(\d+)", name))]
    return max(versions)[1] if versions else None
