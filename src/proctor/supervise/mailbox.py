"""Requests on their way from callers to the supervisor's own thread."""

from __future__ import annotations

import contextlib
import os
import threading
from concurrent.futures import Future

from proctor.rows import Request, Response
from proctor.supervise.succession import Succession

Item = tuple[Request, "Future[Response]"]


class Mailbox:
    """Safe to use from any thread; `descriptor` becomes readable when there is something to see to."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()
        self._items: list[Item] = []
        self._successions: list[Succession] = []
        self._closing = False

    @property
    def closing(self) -> bool:
        """Whether `close` was called."""
        return self._closing

    def put(self, *items: Item) -> bool:
        """Posts requests, all of which the supervisor sees at once. Returns False once the mailbox is closed."""
        with self._lock:
            if self._closing:
                return False
            if items and not self._items:
                os.eventfd_write(self.descriptor, 1)
            self._items.extend(items)
            return True

    def ask(self, succession: Succession) -> bool:
        """Posts the wish for another checkpoint. Returns False once the mailbox is closed."""
        with self._lock:
            if self._closing:
                return False
            self._successions.append(succession)
            os.eventfd_write(self.descriptor, 1)
            return True

    def successions(self) -> list[Succession]:
        """All wishes posted since the last time."""
        with self._lock:
            wishes, self._successions = self._successions, []
            return wishes

    def close(self) -> None:
        """Takes no more requests and wakes the supervisor's thread."""
        with self._lock:
            if not self._closing:
                self._closing = True
                os.eventfd_write(self.descriptor, 1)

    def drain(self) -> list[Item]:
        """Everything posted since the last time."""
        with self._lock:
            items, self._items = self._items, []
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self.descriptor)
            return items

    def dispose(self) -> None:
        """Frees the descriptor; to be called by the thread that drains, after `close`."""
        os.close(self.descriptor)
