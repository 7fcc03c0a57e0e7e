"""Runs that are being looked at, kept open: opening a run reads the footers of all its parts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

from proctor.results import RunDir
from proctor.results.parts import parts_of
from proctor.storage.folder import LocalFolder
from proctor.view.browse.rows import RowTable, open_rows

MOST_OPEN = 3

_State = tuple[tuple[str, int, int], ...]


@dataclass(slots=True)
class _Entry:
    """A table that is open, and by how many it is being read."""

    state: _State
    table: RowTable
    closing: ExitStack
    users: int = 0


@dataclass(slots=True)
class _Turn:
    """The right to open a run, for which `waiting` requests wait or have it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: int = 0


class Shelf:
    """At most `MOST_OPEN` tables, the last used ones; one whose parts have changed is opened anew.

    A run is opened by one request at a time, for which only those of the same run wait.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # of what follows; never held while files are read
        self._turns: dict[str, _Turn] = {}
        self._entries: dict[str, _Entry] = {}
        self._retired: list[_Entry] = []

    @contextmanager
    def table(self, run: RunDir) -> Iterator[RowTable]:
        """The rows of a run, as they are now, during the block.

        Raises:
            UserError, OSError: as `open_rows`.
        """
        with self._turn(run.location):
            entry = self._entry(run)
        self._sweep(MOST_OPEN)
        try:
            yield entry.table
        finally:
            with self._lock:
                entry.users -= 1
            self._sweep(MOST_OPEN)

    def close(self) -> None:
        """Closes all tables that nobody uses; the others as soon as they are free."""
        self._sweep(0)

    @contextmanager
    def _turn(self, key: str) -> Iterator[None]:
        with self._lock:
            turn = self._turns.setdefault(key, _Turn())
            turn.waiting += 1
        try:
            with turn.lock:
                yield
        finally:
            with self._lock:
                turn.waiting -= 1
                if not turn.waiting:
                    del self._turns[key]

    def _entry(self, run: RunDir) -> _Entry:
        """The run's table with one user more: the one that is open, if it is still as the files are."""
        key, state = run.location, _state(run)
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is not None and entry.state != state:
                self._retired.append(entry)
                entry = None
            if entry is not None:
                self._put(key, entry)
                return entry
        with ExitStack() as stack:
            table = stack.enter_context(open_rows(run))
            entry = _Entry(state, table, stack.pop_all())
        with self._lock:
            self._put(key, entry)
        return entry

    def _put(self, key: str, entry: _Entry) -> None:
        self._entries[key] = entry  # at the end: the last used one
        entry.users += 1

    def _sweep(self, most: int) -> None:
        """Retires what is more than `most`, and closes what is retired and not in use."""
        with self._lock:
            for key in list(self._entries)[: max(0, len(self._entries) - most)]:
                self._retired.append(self._entries.pop(key))
            free = [one for one in self._retired if not one.users]
            self._retired = [one for one in self._retired if one.users]
        for entry in free:
            entry.closing.close()


def _state(run: RunDir) -> _State:
    """Changes when a part comes, goes or, on a local disk, is written anew."""
    names = parts_of(run.results)
    if not isinstance(run.results, LocalFolder):
        return tuple((name, 0, 0) for name in names)
    found = []
    for name in names:
        with suppress(FileNotFoundError):
            seen = (run.results.root / name).lstat()
            found.append((name, seen.st_size, seen.st_mtime_ns))
    return tuple(found)
