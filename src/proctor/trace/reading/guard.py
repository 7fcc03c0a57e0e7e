"""Connections that survive any file: read-only, bounded in what one value and one query may take, and interruptible.

An export is a database that somebody else made. Its views and virtual tables are never read (see `columns_of`); what is
left that could run for ever is a damaged tree, which the allowance of steps ends.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

_STEPS_AT_ONCE = 100_000
_FLOOR = 1_000_000_000
_STEPS_A_PAGE = 1_000_000
_LONGEST_VALUE = 64 << 20


class Guard:
    """Counts the steps of a connection's statements, and lets Ctrl-C through while SQLite works.

    Attributes:
        exhausted: whether the last interruption came from the allowance, and not from the keyboard.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.exhausted = False
        self._allowance: int | None = None
        self._left = 0
        pages = int(connection.execute("PRAGMA main.page_count").fetchone()[0])
        self._default = _FLOOR + _STEPS_A_PAGE * pages
        self.allow(self._default)
        connection.set_progress_handler(self._step, _STEPS_AT_ONCE)

    def allow(self, steps: int | None) -> None:
        """From now on a statement may take so many steps of SQLite's machine (some 100 million a second); None: any."""
        self._allowance = steps
        self.restart()

    def allow_default(self) -> None:
        """Back to what a statement over a file of this size can need at the very most."""
        self.allow(self._default)

    def restart(self) -> None:
        """A new statement begins."""
        self.exhausted = False
        self._left = self._allowance or 0

    def _step(self) -> bool:
        # Python runs its signal handlers on entry to this function: that is what lets Ctrl-C end a long statement.
        self._left -= _STEPS_AT_ONCE
        self.exhausted = self._allowance is not None and self._left <= 0
        return self.exhausted


def connect(file: Path) -> sqlite3.Connection:
    """Opens a database file as it is: SQLite takes no lock, reads no journal and writes no side file."""
    connection = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False)
    return prepared(connection)


def prepared(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Sets on a connection what every connection of this room has."""
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
    connection.text_factory = _text
    return connection


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
