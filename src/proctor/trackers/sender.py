"""Decides what a tracker's process is asked next. Pure logic: the caller says what time it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from proctor.rows import Event
from proctor.trackers.courier import Courier
from proctor.trackers.entries import Entry
from proctor.trackers.messages import Batch, Failed, Finish, Finished, Reply, Taken
from proctor.trackers.redaction import redacted

_BATCH_ENTRIES = 50
_BATCH_BYTES = 30_000
"""Less than a pipe holds, so that handing over a batch never waits."""
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0
"""Seconds until a tracker that failed is tried again: doubled each time."""


class Ledger(Protocol):
    """As much of a `Book` as is needed here."""

    def unsent(self) -> list[Entry]:
        """Entries that have not arrived."""

    def acknowledge(self, number: int) -> None:
        """Remembers that all entries up to `number` have arrived."""


class Sender:
    """Sends what is in the book, from the first entry that has not arrived on; starts again where it failed.

    Args:
        name: of the tracker, for events.
        book: everything that was written down.
        start: makes a courier, which first of all opens the tracker.
        tell: is told when the tracker fails for the first time in a row, and when it works again.
        patience: seconds after which a request without a reply has failed.
    """

    def __init__(
        self, name: str, book: Ledger, start: Callable[[], Courier], tell: Callable[[Event], None], patience: float
    ) -> None:
        self._name, self._book, self._start, self._tell, self._patience = name, book, start, tell, patience
        self._courier: Courier | None = None
        self._asked: float | None = None  # when the request was made that is not answered yet
        self._pending: deque[Entry] = deque()
        self._taken = 0
        self._retry_at = 0.0
        self._failures = 0
        self._last_try = False
        self.trouble = ""
        self.done = False

    def add(self, entries: Iterable[Entry]) -> None:
        """New entries, which are in the book already. Without a courier they need not be kept: the book has them."""
        if self._courier is not None:
            self._pending.extend(entries)

    def step(self, now: float, *, closing: bool = False, ok: bool | None = None) -> None:
        """Goes on as far as can be without waiting.

        Args:
            now: seconds, of any clock that never goes back.
            closing: nothing more will be added: send all there is, and finish. What fails then is tried once more.
            ok: whether the run went well, for the tracker.

        Raises:
            OSError: the book cannot be read or written.
        """
        if self._courier is None and not self._open(now, closing):
            return
        self._hear(now)
        if self._courier is None:
            return
        if self._asked is not None:
            if now - self._asked > self._patience:
                self._fail(f"no reply for {self._patience:g} s", now)
        elif self._pending:
            self._ask(Batch(self._next_batch()), now)
        elif closing:
            self._ask(Finish(ok), now)

    def _hear(self, now: float) -> None:
        while self._courier is not None and (reply := self._courier.reply()) is not None:
            self._take(reply, now)

    def end(self) -> None:
        """Ends the tracker's process. May be called by any thread."""
        courier = self._courier
        if courier is not None:
            courier.end()

    def _open(self, now: float, closing: bool) -> bool:
        if self.done or (now < self._retry_at and not closing):
            return False
        self._last_try = closing
        self._pending = deque(self._book.unsent())
        if closing and not self._pending and self._failures:
            self.done = True
            return False
        try:
            self._courier = self._start()
        except OSError as error:
            self._fail(f"its process cannot be started: {error}", now)
            return False
        self._asked = now
        return True

    def _ask(self, request: Batch | Finish, now: float) -> None:
        assert self._courier is not None
        self._courier.ask(request)
        self._asked = now

    def _next_batch(self) -> list[Entry]:
        batch, size = [self._pending.popleft()], 0
        while self._pending and len(batch) < _BATCH_ENTRIES:
            size += 100 + sum(len(name) + len(str(value)) for name, value in batch[-1].values.items())
            if size > _BATCH_BYTES / 4:  # a character may be four bytes
                break
            batch.append(self._pending.popleft())
        return batch

    def _take(self, reply: Reply, now: float) -> None:
        self._asked = None
        if isinstance(reply, Failed):
            self._fail(reply.reason, now)
        elif isinstance(reply, Taken):  # that it can be opened says little: only what it takes makes it work again
            self._recover()
            self._taken = reply.upto
            if reply.arrived:
                self._book.acknowledge(reply.upto)
            for number, reason in reply.refused.items():
                text = f"{self._name} refused entry {number}: {reason}"
                self._tell(Event("tracker.refused", action="it stays on disk", message=text))
        elif isinstance(reply, Finished):
            self._book.acknowledge(self._taken)
            self.done = True
            self.end()
            self._courier = None  # what it says of its own end is no failure

    def _recover(self) -> None:
        if self._failures:
            self._tell(Event("tracker.recovered", message=f"{self._name} works again"))
        self._failures, self.trouble = 0, ""

    def _fail(self, reason: str, now: float) -> None:
        self.end()
        self._courier, self._asked = None, None
        self._pending.clear()
        self.trouble = redacted(reason)
        if not self._failures:
            text = f"{self._name}: {self.trouble}"
            self._tell(Event("tracker.failed", action="kept on disk, tried again", message=text))
        self._retry_at = now + min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**self._failures)
        self._failures = min(self._failures + 1, 10)
        self.done = self._last_try
