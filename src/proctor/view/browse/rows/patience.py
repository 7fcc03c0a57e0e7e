"""How long a question may take, and who still waits for its answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from proctor.rows import UserError

QUERY_SECONDS = 20.0
EXPORT_SECONDS = 900.0
_AGAIN = 0.2  # seconds; a query that is just about to begin does not notice that it is interrupted


class Patience:
    """Ends the queries of one request when its time is up, or when nobody waits for them any more.

    Args:
        seconds: from now, for all of them together.
    """

    def __init__(self, seconds: float = QUERY_SECONDS) -> None:
        self.seconds = seconds
        self._until = time.monotonic() + seconds
        self._changed = threading.Condition()
        self._running: set[int] = set()
        self._gone = False

    @property
    def left(self) -> float:
        """Seconds, 0 if nobody waits any more."""
        return 0.0 if self._gone else max(0.0, self._until - time.monotonic())

    def give_up(self) -> None:
        """Nobody waits any more."""
        with self._changed:
            self._gone = True
            self._changed.notify_all()

    @contextmanager
    def over(self, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """Watches what `connection` does during the block.

        Raises:
            UserError: the time was up, which takes the place of what DuckDB says then.
        """
        self.check()
        with self._changed:
            self._running.add(id(connection))
        watch = threading.Thread(target=self._watch, args=(connection,), daemon=True)
        watch.start()
        try:
            yield
        except duckdb.InterruptException:
            raise self._spent() from None
        finally:
            with self._changed:
                self._running.discard(id(connection))
                self._changed.notify_all()
            watch.join()

    def check(self) -> None:
        """Whether there is time left.

        Raises:
            UserError: there is none.
        """
        if not self.left:
            raise self._spent()

    def _spent(self) -> UserError:
        fix = "narrow the filter, or sort by row_id"
        return UserError(f"this takes longer than {self.seconds:g} s, so it was ended", fix=fix)

    def _watch(self, connection: duckdb.DuckDBPyConnection) -> None:
        with self._changed:
            while id(connection) in self._running:
                left = self.left
                if not left:
                    connection.interrupt()
                self._changed.wait(left or _AGAIN)
