"""A journal where nothing can be appended to: numbered objects that are read one after another."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proctor.storage.objects import ObjectFolder

_SECONDS = 1.0
"""Least time between two segments that are written because a line came."""


class Segments:
    """``000001.jsonl``, ``000002.jsonl`` ...: each is created once and never written again, so that writers which do
    not know of each other (a run and its resume) never overwrite each other's lines."""

    def __init__(self, folder: ObjectFolder) -> None:
        self._folder = folder
        self._kept: list[bytes] = []
        self._next: int | None = None
        self._written = -_SECONDS
        self._lock = threading.Lock()

    def append(self, line: bytes) -> None:
        """Keeps a line, and writes what is kept if the last segment is long enough ago."""
        with self._lock:
            self._kept.append(line)
            if time.monotonic() - self._written >= _SECONDS:
                self._write()

    def flush(self) -> None:
        """Writes a segment with what is kept."""
        with self._lock:
            self._write()

    def lines(self) -> list[bytes]:
        """All lines of all segments."""
        with ThreadPoolExecutor(self._folder.concurrency) as pool:
            return [line for data in pool.map(self._folder.read, self._names()) for line in data.splitlines()]

    def exists(self) -> bool:
        """Whether there is a segment."""
        return bool(self._names())

    def _write(self) -> None:
        if not self._kept:
            return
        self._written = time.monotonic()
        data = b"".join(line + b"\n" for line in self._kept)
        if self._next is None:
            self._next = 1 + max((int(name.partition(".")[0]) for name in self._names()), default=0)
        while self._folder.create(f"{self._next:06d}.jsonl", data) is None:
            if self._folder.read(f"{self._next:06d}.jsonl") == data:
                break  # it is ours: only the answer to the first try was lost
            self._next += 1
        self._next += 1
        self._kept.clear()

    def _names(self) -> list[str]:
        return [name for name in self._folder.names() if name.endswith(".jsonl")]
