"""Runs that are being looked at, kept open: opening a run reads the footers of all its parts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from proctor.results import RunDir
from proctor.results.parts import parts_of
from proctor.storage.folder import LocalFolder
from proctor.storage.lease import seems_held
from proctor.view.browse.rows import RowTable, open_rows

MOST_OPEN = 3

T = TypeVar("T")


@dataclass(slots=True)
class _Entry(Generic[T]):
    """Something that is open, and by how many it is being used."""

    state: Hashable
    thing: T
    closing: ExitStack
    users: int = 0


@dataclass(slots=True)
class _Turn:
    """The right to open something, for which `waiting` requests wait or have it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: int = 0


class Kept(Generic[T]):
    """At most `most` things that are open, the last used ones; one whose files have changed is opened anew.

    A thing is opened by one request at a time, for which only those for the same thing wait.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()  # of what follows; never held while files are read
        self._turns: dict[Hashable, _Turn] = {}
        self._entries: dict[Hashable, _Entry[T]] = {}
        self._retired: list[_Entry[T]] = []

    @contextmanager
    def held(
        self, key: Hashable, state: Callable[[], Hashable], opening: Callable[[], AbstractContextManager[T]]
    ) -> Iterator[T]:
        """The thing of a key, as its files are now, during the block.

        Args:
            key: what tells it from others.
            state: what its files are now; asked when nobody else opens it.
            opening: opens it. What that raises is raised here.
        """
        with self._turn(key):
            entry = self._entry(key, state(), opening)
        self._sweep(self._most)
        try:
            yield entry.thing
        finally:
            with self._lock:
                entry.users -= 1
            self._sweep(self._most)

    def close(self) -> None:
        """Closes all that nobody uses; the others as soon as they are free."""
        self._sweep(0)

    @contextmanager
    def _turn(self, key: Hashable) -> Iterator[None]:
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

    def _entry(self, key: Hashable, state: Hashable, opening: Callable[[], AbstractContextManager[T]]) -> _Entry[T]:
        """The entry with one user more: the one that is open, if it is still as the files are."""
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is not None and entry.state != state:
                self._retired.append(entry)
                entry = None
            if entry is not None:
                self._put(key, entry)
                return entry
        with ExitStack() as stack:
            thing = stack.enter_context(opening())
            entry = _Entry(state, thing, stack.pop_all())
        with self._lock:
            self._put(key, entry)
        return entry

    def _put(self, key: Hashable, entry: _Entry[T]) -> None:
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


class Shelf:
    """The rows of at most `MOST_OPEN` runs, those that were looked at last."""

    def __init__(self) -> None:
        self._kept = Kept[RowTable](MOST_OPEN)

    @contextmanager
    def table(self, run: RunDir) -> Iterator[RowTable]:
        """The rows of a run, as they are now, during the block.

        Raises:
            UserError, OSError: as `open_rows`.
        """
        with self._kept.held(run.location, lambda: state_of(run), lambda: open_rows(run)) as table:
            yield table

    def close(self) -> None:
        """Closes all tables that nobody uses; the others as soon as they are free."""
        self._kept.close()


def state_of(run: RunDir) -> Hashable:
    """Changes when a part comes, goes or, on a local disk, is written anew; there also when the run begins or ends."""
    names = parts_of(run.results)
    if not isinstance(run.results, LocalFolder):
        return tuple((name, 0, 0) for name in names)
    found: list[Hashable] = []
    for name in names:
        with suppress(FileNotFoundError):
            seen = (run.results.root / name).lstat()
            found.append((name, seen.st_size, seen.st_mtime_ns))
    return (*found, seems_held(run.folder))
