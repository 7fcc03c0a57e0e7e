"""Traces that are being looked at, kept open: opening one, and reading its events, takes seconds."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from proctor.rows import UserError
from proctor.trace import Trace, open_trace, origin
from proctor.trace.diff import Diff, diff
from proctor.trace.reading.misplaced import misplaced
from proctor.trace.summary.summary import Summary, kept_summary
from proctor.trace.timeline.lanes import Events, read_events
from proctor.trace.trace import explained
from proctor.view.traces.files import MOST_TEXT, TraceFile

MOST_OPEN = 2
"""Traces that stay open while nobody asks for them."""
MOST_BUSY = 3
"""Traces that are read at a time."""
MOST_WAITING = 8
"""Requests that wait for traces; more are turned away, so that other pages have threads left."""
MOST_DIFFS = 8
_SECONDS = 120.0
_DAMAGE = (TypeError, ValueError, ArithmeticError, LookupError)
"""What values of a kind that a column cannot have may raise."""

_Key = tuple[str, int, int]


class OpenTrace:
    """A trace, and what was read of it once; for one request at a time.

    Attributes:
        file: where it is.
        trace: open.
    """

    def __init__(self, file: TraceFile) -> None:
        self.file = file
        self.trace: Trace = open_trace(file.file, most_text=MOST_TEXT)

    @cached_property
    def zero(self) -> int:
        """The first event on the trace's own clock, ns."""
        return origin(self.trace)

    @cached_property
    def events(self) -> Events:
        """All its events."""
        return read_events(self.trace)

    @cached_property
    def summary(self) -> Summary:
        """What `proctor trace` says of it; kept in the same cache."""
        return kept_summary(self.trace)


@dataclass(slots=True)
class _Held:
    """A place on the shelf: whether a request has it, and its trace once that is open."""

    busy: bool = False
    open: OpenTrace | None = None


class TraceShelf:
    """Opens traces, lets one request at a time read each, and closes those that were not used for longest."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: dict[_Key, _Held] = {}
        self._diffs: dict[tuple[_Key, _Key, str, bool], Diff] = {}
        self._waiting = 0

    @contextmanager
    def traces(self, *files: TraceFile) -> Iterator[list[OpenTrace]]:
        """The traces of some files, for this request alone during the block.

        Raises:
            UserError: one is none, or is damaged; or others read it and do not end.
        """
        keys = list(dict.fromkeys(file.key for file in files))
        taken = self._take(keys)
        try:
            for file in files:
                held = taken[file.key]
                if held.open is None:
                    held.open = OpenTrace(file)
            found = [one for file in files if (one := taken[file.key].open) is not None]
            with _told(found):
                yield found
        finally:
            self._give_back(taken)

    def diff(self, a: TraceFile, b: TraceFile, per: str = "", *, force: bool = False) -> Diff:
        """What changed from one trace to another; the last `MOST_DIFFS` are kept.

        Raises:
            UserError: as `traces`, or a side has no range `per`.
        """
        key = (a.key, b.key, per, force)
        with self._changed:
            known = self._diffs.get(key)
        if known is not None:
            return known
        with self.traces(a, b) as (one, two):
            found = diff(one.trace, two.trace, per=per or None, force=force)
        with self._changed:
            self._diffs[key] = found
            for old in list(self._diffs)[:-MOST_DIFFS]:
                del self._diffs[old]
        return found

    def close(self) -> None:
        """Closes the traces that nobody reads."""
        with self._changed:
            self._close_idle(0)

    def _take(self, keys: Sequence[_Key]) -> dict[_Key, _Held]:
        """Entries for `keys`, all at once: who holds one and waits for another could wait for ever."""
        with self._changed:
            if self._waiting >= MOST_WAITING and not self._are_free(keys):
                raise _crowded()
            self._waiting += 1
            try:
                if not self._changed.wait_for(lambda: self._are_free(keys), _SECONDS):
                    raise _crowded()
            finally:
                self._waiting -= 1
            taken = {key: self._held.pop(key, _Held()) for key in keys}
            self._held |= taken  # at the end: the last used ones
            for held in taken.values():
                held.busy = True
            return taken

    def _are_free(self, keys: Sequence[_Key]) -> bool:
        busy = [key for key, held in self._held.items() if held.busy]
        return not set(keys) & set(busy) and (not busy or len(busy) + len(keys) <= MOST_BUSY)

    def _give_back(self, taken: dict[_Key, _Held]) -> None:
        with self._changed:
            for key, held in taken.items():
                held.busy = False
                if held.open is None:  # it could not be opened
                    del self._held[key]
            self._close_idle(MOST_OPEN)
            self._changed.notify_all()

    def _close_idle(self, most: int) -> None:
        idle = [key for key, held in self._held.items() if not held.busy]
        for key in idle[: max(0, len(self._held) - most)]:
            held = self._held.pop(key)
            if held.open is not None:
                held.open.trace.close()


@contextmanager
def _told(opened: Sequence[OpenTrace]) -> Iterator[None]:
    """What reading a damaged file raises becomes one line."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise explained(error, opened[0].trace.path, opened[0].trace.guard) from error
    except _DAMAGE as error:
        for one in opened:
            if found := misplaced(one.trace):
                raise found from error
        raise


def _crowded() -> UserError:
    return UserError("traces are being read for other pages", fix="wait, and reload this page")
