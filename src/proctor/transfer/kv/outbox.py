"""Blocks on their way to the sending thread: few enough that a fast prefill waits for a slow decode."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar, final

from proctor.transfer.devices.base import seconds_left
from proctor.transfer.errors import Reason, TransferError

Item = TypeVar("Item")


@final
class Outbox(Generic[Item]):
    """A queue with room for so many bytes and blocks; whoever finds it full waits.

    Args:
        nbytes: most bytes; a block that is larger goes in alone.
        count: most blocks.
    """

    def __init__(self, nbytes: int, count: int) -> None:
        self._room, self._count = nbytes, count
        self._items: OrderedDict[str, tuple[Item, int]] = OrderedDict()
        self._changed = threading.Condition()
        self._ended: TransferError | None = None
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._items)

    def put(self, request: str, item: Item, nbytes: int, deadline: float | None = None) -> None:
        """Waits for room and appends.

        Raises:
            TransferError: ``LATE``: there was none until the deadline; or why the queue has ended.
            ValueError: the request is in the queue.
        """
        with self._changed:
            if not self._changed.wait_for(
                lambda: self._ended is not None or self._fits(nbytes), seconds_left(deadline)
            ):
                raise TransferError(
                    Reason.LATE,
                    f"{request}: no room in the queue at the deadline: {len(self)} blocks, {self.nbytes:,} bytes",
                )
            if self._ended is not None:
                raise self._ended
            if request in self._items:
                raise ValueError(f"{request} is in the queue")
            self._items[request] = (item, nbytes)
            self.nbytes += nbytes

    def _fits(self, nbytes: int) -> bool:
        return not self._items or (len(self._items) < self._count and self.nbytes + nbytes <= self._room)

    def first(self) -> Item | None:
        """The oldest, which stays; None if there is none."""
        with self._changed:
            return next(iter(self._items.values()))[0] if self._items else None

    def take(self, request: str) -> Item | None:
        """Removes one, which makes room; None if it is not there."""
        with self._changed:
            item, nbytes = self._items.pop(request, (None, 0))
            self.nbytes -= nbytes
            self._changed.notify_all()
            return item

    def end(self, error: TransferError) -> list[Item]:
        """Lets nobody in any more, wakes who waits, and returns what was there."""
        with self._changed:
            self._ended = self._ended or error
            left = [item for item, _ in self._items.values()]
            self._items.clear()
            self.nbytes = 0
            self._changed.notify_all()
            return left
