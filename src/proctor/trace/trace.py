"""An open trace: a read-only connection with the model's views, and what is known about the capture."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from proctor.rows import UserError
from proctor.trace.model import Gpu, GraphMode, Note, Origin, Process, Schema, Severity
from proctor.trace.reading.guard import Guard

_ROWS_AT_ONCE = 10_000
UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What SQLite raises for a damaged file: the message is no text where it quotes a schema that is none."""


class Trace:
    """One capture, open for reading. Close it, or use it in ``with``.

    Attributes:
        path: the file the user named.
        origin: what wrote it.
        schema: version of the export; None for Kineto traces.
        tool: what wrote the trace, with its version, in words.
        gpus: the GPUs, one entry per process that numbers them differently; see `gpu`.
        processes: those that did something with CUDA; if none did, those with annotations or calls of the system.
        graph_mode: whether kernels inside CUDA graphs were recorded one by one.
        driver: version of the GPU's driver; empty where the trace does not say.
        window: first start and last end of anything on a GPU or in an API call, ns; (0, 0) in an empty trace.
        notes: what a reader must know before trusting a figure.
        connection: for queries over the views of `proctor.trace.views`. Temporary tables live in memory.
        guard: bounds what one statement of `rows`, `one` and `run` may take.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        path: Path,
        origin: Origin,
        tables: Mapping[str, str | None],
        schema: Schema | None = None,
        tool: str = "",
        gpus: Sequence[Gpu] = (),
        processes: Sequence[Process] = (),
        graph_mode: GraphMode = GraphMode.UNKNOWN,
        driver: str = "",
        window: tuple[int, int] = (0, 0),
        notes: Sequence[Note] = (),
    ) -> None:
        self.connection = connection
        self.path = path
        self.origin = origin
        self.schema = schema
        self.tool = tool
        self.gpus = tuple(gpus)
        self.processes = tuple(processes)
        self.graph_mode = graph_mode
        self.driver = driver
        self.window = window
        self.notes = tuple(notes)
        self.guard = Guard(connection)
        self._tables = dict(tables)
        self._gpus = {(gpu.device, gpu.process): gpu for gpu in reversed(self.gpus)}  # of two the first

    def has(self, view: str) -> bool:
        """Whether the file has the table under `view`, and anything in it."""
        return self._tables[view] is not None and self.one(f"SELECT EXISTS (SELECT 1 FROM {view})") == 1

    def rows(self, sql: str, parameters: Sequence[object] | Mapping[str, object] = ()) -> Iterator[tuple[Any, ...]]:
        """The result of a query, a bounded number of rows at a time.

        Raises:
            UserError: the file is damaged where the query read it, or reading it does not end.
            KeyboardInterrupt: Ctrl-C, also while SQLite works.
        """
        self.guard.restart()
        try:
            cursor = self.connection.execute(sql, parameters)
            while rows := cursor.fetchmany(_ROWS_AT_ONCE):
                yield from rows
        except UNREADABLE as error:
            raise self._damaged(error) from error

    def one(self, sql: str, parameters: Sequence[object] | Mapping[str, object] = ()) -> Any:
        """The first column of the first row; None if there is none."""
        return next((row[0] for row in self.rows(sql, parameters)), None)

    def run(self, sql: str, parameters: Sequence[object] | Mapping[str, object] = ()) -> None:
        """Executes a statement that returns nothing, such as filling a temporary table."""
        for _ in self.rows(sql, parameters):
            pass

    def text(self, ids: Iterable[int]) -> dict[int, str]:
        """The strings with these ids; only those are read. An id that the file does not have says so."""
        found: dict[int, str] = {}
        for number in set(ids):
            text = self.one("SELECT text FROM strings WHERE id = ?", (number,))
            found[number] = f"[string {number} is not in the trace]" if text is None else str(text)
        return found

    def gpu(self, device: int, process: int | None = None) -> Gpu:
        """The GPU that `process` calls `device`. One that the trace does not describe has only its number."""
        for whose in (process, None):
            if (gpu := self._gpus.get((device, whose))) is not None:
                return gpu
        return Gpu(device=device, process=process)

    def missing(self, view: str, question: str) -> UserError:
        """What to raise where `question` needs `view`, and the trace has none of it: with the note that explains it."""
        error = next((note for note in self.notes if note.severity is Severity.ERROR), None)
        why = f": {error.what}" if error else ""
        return UserError(
            f"{question} needs {view}, and this trace has none{why}",
            where=str(self.path),
            fix=error.advice if error else None,
        )

    def close(self) -> None:
        """Frees the connection. May be called twice."""
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _damaged(self, error: sqlite3.DatabaseError | UnicodeDecodeError) -> BaseException:
        return explained(error, self.path, self.guard)


_DAMAGE = ("malformed", "disk I/O", "not a database", "too big", "corrupt", "integer overflow")


def explained(
    error: sqlite3.DatabaseError | UnicodeDecodeError, path: Path, guard: Guard | None = None
) -> BaseException:
    """What to raise for an error of SQLite: a plain line where the file is to blame, otherwise the error itself."""
    text = str(error)
    again = "export it again with `nsys export`"
    if isinstance(error, UnicodeDecodeError):
        return UserError("the file is damaged: its schema is no text", where=str(path), fix=again)
    if text == "interrupted":
        if guard is None or not guard.exhausted:
            return KeyboardInterrupt()
        return UserError("reading this file does not end: it is damaged, or made so", where=str(path), fix=again)
    if isinstance(error, sqlite3.ProgrammingError):
        return error
    if not isinstance(error, sqlite3.OperationalError) or any(word in text for word in _DAMAGE):
        return UserError(f"the file is damaged: {text}", where=str(path), fix=again)
    return error
