"""On which GPU a synchronisation was: the device of its context, whatever its own row says.

Exports have been seen in which every row of ``CUPTI_ACTIVITY_KIND_SYNCHRONIZATION`` says device 0, although the same
context of the same process launched its kernels on device 1. A context belongs to one device, so work that ran in it
settles the question, and the table of contexts does where nothing ran.
"""

from __future__ import annotations

import sqlite3

from proctor.trace.model import pid_of

_PLACES = "sync_places"
_MOST_CONTEXTS = 1000


def place_syncs(connection: sqlite3.Connection) -> None:
    """Makes the view ``syncs`` give the device of each row's context. A view whose rows are right stays as it is.

    Raises:
        sqlite3.DatabaseError: the file is damaged.
    """
    sql = (
        "SELECT DISTINCT process, context, device FROM syncs WHERE process IS NOT NULL AND context IS NOT NULL "
        f"LIMIT {_MOST_CONTEXTS}"
    )
    said = [row for row in connection.execute(sql) if all(isinstance(cell, int) for cell in row[:2])]
    places = {(process, context): _device(connection, process, context) for process, context, _ in said}
    wrong = {
        (process, context, places[process, context])
        for process, context, device in said
        if places[process, context] not in (None, device)
    }
    if wrong:
        _put(connection, sorted(wrong))


def _device(connection: sqlite3.Connection, process: int, context: int) -> int | None:
    """The device of a context: of the first work found in it, else as the table of contexts has it."""
    questions = [
        (f"SELECT device FROM {view} WHERE process = ? AND context = ? LIMIT 1", process)
        for view in ("kernels", "copies", "memsets")
    ]
    questions.append(("SELECT device FROM contexts WHERE pid = ? AND context = ? LIMIT 1", pid_of(process)))
    for sql, owner in questions:
        row = connection.execute(sql, (owner, context)).fetchone()
        if row is not None and isinstance(row[0], int):
            return row[0]
    return None


def _put(connection: sqlite3.Connection, places: list[tuple[int, int, int | None]]) -> None:
    made = connection.execute("SELECT sql FROM sqlite_temp_master WHERE type = 'view' AND name = 'syncs'").fetchone()[0]
    select = str(made).split(" AS ", 1)[1]
    columns = [str(row[1]) for row in connection.execute("PRAGMA temp.table_info(syncs)")]
    connection.execute(
        f"CREATE TEMP TABLE {_PLACES} (process INTEGER, context INTEGER, device INTEGER, "
        "PRIMARY KEY (process, context)) WITHOUT ROWID"
    )
    connection.executemany(f"INSERT INTO {_PLACES} VALUES (?, ?, ?)", places)
    right = f"SELECT p.device FROM {_PLACES} p WHERE p.process = s.process AND p.context = s.context"
    shown = ", ".join(
        f"coalesce(({right}), s.device) AS device" if name == "device" else f's."{name}"' for name in columns
    )
    connection.execute("DROP VIEW temp.syncs")
    connection.execute(f"CREATE TEMP VIEW syncs AS SELECT {shown} FROM ({select}) s")
