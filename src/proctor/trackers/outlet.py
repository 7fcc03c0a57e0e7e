"""One tracker of a run: a queue that never makes anybody wait, and a thread that writes down and sends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import Empty, Full, Queue
from typing import NamedTuple

from proctor.rows import Event, told
from proctor.trackers.book import Book
from proctor.trackers.entries import Entry, Kind, Value
from proctor.trackers.sender import Sender

_ROOM = 1000
_TICK = 0.1
_GRACE = 2.0
"""Seconds beyond its limit after which the thread is left to itself: it waits for a disk, then."""


class _Item(NamedTuple):
    kind: Kind
    time: float
    step: int
    values: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Closed:
    """How a tracker ended.

    Attributes:
        written: entries in its file.
        arrived: how many of them the tracker has said to have.
        lost: entries that could not even be written down.
        trouble: what kept the rest from arriving.
    """

    name: str
    written: int
    arrived: int
    lost: int
    trouble: str

    @property
    def complete(self) -> bool:
        """Whether everything has arrived."""
        return self.arrived >= self.written and not self.lost


class Outlet:
    """Takes entries, has them on disk within a moment, and sends them on. Nothing that goes wrong here comes out.

    Args:
        name: of the tracker.
        open_book: makes its book, in the outlet's thread.
        open_sender: makes what sends; None: the file is all there is.
        tell: is told of what goes wrong.
        held: whether the run directory may still be written to.
    """

    def __init__(
        self,
        name: str,
        open_book: Callable[[], Book],
        open_sender: Callable[[Book], Sender] | None,
        tell: Callable[[Event], None],
        held: Callable[[], bool] = lambda: True,
    ) -> None:
        self.name = name
        self._open_book, self._open_sender, self._tell, self._held = open_book, open_sender, tell, held
        self._queue: Queue[_Item] = Queue(_ROOM)
        self._book: Book | None = None
        self._sender: Sender | None = None
        self._lost = 0
        self._new = True
        self._trouble = ""
        self._closing = threading.Event()
        self._ok: bool | None = None
        self._deadline = float("inf")
        self._thread = threading.Thread(target=self._run, name=f"proctor-tracker-{name}", daemon=True)
        self._thread.start()

    def put(self, kind: Kind, step: int, values: Mapping[str, Value]) -> None:
        """Hands over an entry; never waits. When 1,000 are waiting for the disk already, it is lost, and counted.
        Parameters count only if nothing was written by an earlier process."""
        try:
            self._queue.put_nowait(_Item(kind, time.time(), step, dict(values)))
        except Full:
            self._lost += 1

    def begin_close(self, seconds: float, *, ok: bool | None) -> None:
        """Nothing more comes: what is there is sent for `seconds` at most. Does not wait."""
        self._deadline, self._ok = time.monotonic() + seconds, ok
        self._closing.set()

    def end_close(self) -> Closed:
        """Waits until the thread is done, and little longer than it was given; then ends the process all the same."""
        try:
            self._thread.join(max(0.0, self._deadline - time.monotonic()) + _GRACE)
        finally:
            self.kill()
        return self.state

    def kill(self) -> None:
        """Ends the tracker's process."""
        if self._sender is not None:
            self._sender.end()

    @property
    def state(self) -> Closed:
        """How far it is."""
        book, sender = self._book, self._sender
        lost = self._lost + self._queue.qsize()
        trouble = self._trouble or (sender.trouble if sender is not None else "")
        if book is None:
            return Closed(self.name, 0, 0, lost, trouble or "its file cannot be opened")
        arrived = book.last if self._open_sender is None else book.arrived
        return Closed(self.name, book.last, arrived, lost, trouble)

    def _run(self) -> None:
        try:
            self._book = self._open_book()
            self._new = self._book.is_new
            if self._open_sender is not None:
                self._sender = self._open_sender(self._book)
            self._serve(self._book)
            if self._held():
                self._book.flush()
        except Exception as error:  # a full disk, a bucket that is gone: no reason to end a run
            self._trouble = told(error)
            self._tell(Event("tracker.failed", message=f"{self.name}: {self._trouble}"))
        finally:
            self.kill()

    def _serve(self, book: Book) -> None:
        while self._held():
            last_round = self._closing.is_set()  # looked at before the queue is: nothing comes after it
            entries = self._write_down(book)
            if self._sender is not None:
                self._sender.add(entries)
                self._sender.step(time.monotonic(), closing=last_round, ok=self._ok)
            if last_round and (self._sender is None or self._sender.done or time.monotonic() > self._deadline):
                return

    def _write_down(self, book: Book) -> list[Entry]:
        """Writes what is in the queue; waits a moment for the first of it."""
        entries: list[Entry] = []
        wait = _TICK
        while True:
            try:
                item = self._queue.get(timeout=wait) if wait else self._queue.get_nowait()
            except Empty:
                return entries
            wait = 0.0
            settled = item.kind == "params" and not self._new  # most trackers let nobody change them
            if self._held() and not settled:
                entries.append(book.write(*item))
