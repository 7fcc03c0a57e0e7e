"""A journal where nothing can be appended to: numbered objects that are read one after another."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proctor.storage.objects import ObjectFolder

_SECONDS = 1.0
"""How long lines are gathered for one segment."""


class Segments:
    """``000001.jsonl``, ``000002.jsonl`` ...: each is created once and never written again, so that writers which do
    not know of each other (a run and its resume) never overwrite each other's lines."""

    def __init__(self, folder: ObjectFolder) -> None:
        self._folder = folder
        self._kept: list[bytes] = []
        self._next: int | None = None
        self._keeping, self._writing = threading.Lock(), threading.Lock()
        self._writer: threading.Thread | None = None

    def append(self, line: bytes) -> None:
        """Keeps a line; a thread of its own writes what is kept, so that nobody waits for the storage."""
        with self._keeping:
            self._kept.append(line)
            if self._writer is None:
                self._writer = threading.Thread(target=self._write_soon, name="proctor-journal", daemon=True)
                self._writer.start()

    def flush(self) -> None:
        """Writes a segment with what is kept."""
        with self._writing:
            with self._keeping:
                lines = list(self._kept)
            if lines:
                self._write(b"".join(line + b"\n" for line in lines))
            with self._keeping:
                del self._kept[: len(lines)]

    def lines(self) -> list[bytes]:
        """All lines of all segments."""
        with ThreadPoolExecutor(self._folder.concurrency) as pool:
            return [line for data in pool.map(self._folder.read, self._names()) for line in data.splitlines()]

    def exists(self) -> bool:
        """Whether there is a segment."""
        return bool(self._names())

    def _write_soon(self) -> None:
        while True:
            time.sleep(_SECONDS)
            with contextlib.suppress(OSError):
                self.flush()
            with self._keeping:
                if not self._kept:
                    self._writer = None
                    return

    def _write(self, data: bytes) -> None:
        if self._next is None:
            self._next = 1 + max((int(name.partition(".")[0]) for name in self._names()), default=0)
        while self._folder.create(f"{self._next:06d}.jsonl", data) is None:
            if self._folder.read(f"{self._next:06d}.jsonl") == data:
                break  # it is ours: only the answer to the first try was lost
            self._next += 1
        self._next += 1

    def _names(self) -> list[str]:
        return [name for name in self._folder.names() if name.endswith(".jsonl")]
