"""Keeps Pillow's warnings to itself."""

from __future__ import annotations

import threading
import warnings
from types import TracebackType


class Silence:
    """Keeps Pillow's warnings from leaving `decode`, also when several threads decode at once.

    `warnings.catch_warnings` alone would let overlapping threads restore each other's filters: only the first one
    in saves them and only the last one out restores them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._saved: warnings.catch_warnings[None] | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._saved = warnings.catch_warnings()
                self._saved.__enter__()
                warnings.simplefilter("ignore")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._saved is not None:
                self._saved.__exit__(kind, error, trace)
                self._saved = None


SILENCE = Silence()
"""The one of this process: filters of warnings are of the whole process."""
