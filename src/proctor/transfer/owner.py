"""One thread owns what must not be shared: two threads on one process group swapped 36 of 40 tensors, with no error."""

from __future__ import annotations

import threading


class WrongThreadError(RuntimeError):
    """A second thread uses what another one owns: a mistake in the program, not in the transfer."""


class Owner:
    """Belongs to the first thread that calls `check`, for good.

    Args:
        what: what is owned, for the message.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raises: WrongThreadError: another thread came first."""
        mine = threading.current_thread()
        with self._lock:
            if self._thread is None:
                self._thread = mine
            if self._thread is not mine:
                raise WrongThreadError(
                    f"{self._what} belongs to thread {self._thread.name}, and {mine.name} uses it: its operations "
                    "would be matched in an order of chance"
                )
