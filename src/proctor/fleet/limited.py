"""Calls to servers that may do anything, kept within their time.

A socket's own limit begins anew with every byte, and the look-up of a name has none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

_T = TypeVar("_T")


class Limited:
    """Makes calls in threads of their own, which are left to themselves when their time is over.

    Args:
        name: of the threads.
        most: calls that may hang at the same time before the next one is not even begun.
    """

    def __init__(self, name: str, most: int = 4) -> None:
        self._name, self._most = name, most
        self._left: list[threading.Thread] = []

    def call(self, ask: Callable[[], _T], seconds: float) -> _T:
        """What `ask` gives.

        Raises:
            TimeoutError: nothing within so many seconds, or too many earlier calls still hang.
            Exception: what `ask` raises.
        """
        self._left = [thread for thread in self._left if thread.is_alive()]
        if len(self._left) >= self._most:
            raise TimeoutError(f"{len(self._left)} earlier tries still hang")
        replies: SimpleQueue[tuple[_T, None] | tuple[None, Exception]] = SimpleQueue()

        def answer() -> None:
            try:
                replies.put((ask(), None))
            except Exception as error:  # raised again where it was asked
                replies.put((None, error))

        thread = threading.Thread(target=answer, name=self._name, daemon=True)
        thread.start()
        try:
            reply = replies.get(timeout=seconds)
        except Empty:
            self._left.append(thread)
            raise TimeoutError(f"no reply within {seconds:g} s") from None
        if reply[1] is not None:
            raise reply[1]
        return reply[0]
