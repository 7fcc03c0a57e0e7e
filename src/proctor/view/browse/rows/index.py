"""An index of a large run: its narrow columns once more, in one compressed table beside the records.

To look through the parts means to open hundreds of files; through this table it takes some milliseconds. It is made
in the background, and a question that comes before, or asks for more than these columns, goes to the parts.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from contextlib import suppress

import duckdb

from proctor.view.browse.filters import Columns

TABLE = "narrow"
LEAST_ROWS = 50_000
"""Below that the parts themselves are quick enough."""
_PAUSE = 1.0  # seconds: the first page comes first
_LONGEST_TEXT = 200  # bytes
_WIDE = frozenset({"answer", "prompt", "target", "error_message", "conversions", "notice"})


class Index:
    """The narrow columns of the view ``records`` of `connection`'s database.

    Args:
        connection: is used by this alone.
        columns: those of the records.
        extra: quoted names of what tells records apart besides.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, columns: Columns, extra: Collection[str]) -> None:
        self._connection, self._columns, self._extra = connection, columns, extra
        self._held: frozenset[str] = frozenset()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._build, name="index of rows", daemon=True)

    def start(self) -> Index:
        """Begins to make it, in the background."""
        self._thread.start()
        return self

    def has(self, names: Collection[str]) -> bool:
        """Whether it is there and has these columns."""
        return bool(self._held) and self._held.issuperset(names)

    def wait(self, seconds: float) -> bool:
        """Whether it is there, after at most so many seconds."""
        self._thread.join(seconds)
        return bool(self._held)

    def close(self) -> None:
        """Ends the making of it."""
        self._ended.set()
        while self._thread.is_alive():
            self._connection.interrupt()
            self._thread.join(0.05)
        self._connection.close()

    def _build(self) -> None:
        if self._ended.wait(_PAUSE):
            return
        with suppress(duckdb.Error):  # interrupted, or no room, or a part has changed: then there is none
            names = self._narrow()
            cells = ", ".join([self._columns.own[name].sql for name in names] + list(self._extra))
            self._connection.execute(f"create table {TABLE} as select {cells} from records")
            self._held = frozenset(names)

    def _narrow(self) -> list[str]:
        """Numbers, times, yes or no, and texts that are short everywhere."""
        own = self._columns.own
        plain = [name for name, column in own.items() if column.kind in ("number", "yes or no", "time")]
        texts = [name for name, column in own.items() if column.kind == "text" and name not in _WIDE]
        longest = ", ".join(f"max(strlen({own[name].sql}::varchar))" for name in texts)
        found = self._connection.execute(f"select {longest} from records").fetchall()[0]
        short = {name for name, length in zip(texts, found, strict=True) if (length or 0) <= _LONGEST_TEXT}
        return [name for name in own if name in short or name in plain]
