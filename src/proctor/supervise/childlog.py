"""What a child prints: kept in a file that cannot grow without end."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

MAX_BYTES = 8 << 20
KEPT_BYTES = 1 << 20
TAIL_BYTES = 8 << 10
LINE_CHARACTERS = 1000


class ChildLog:
    """An append-only file that the child has as its standard output and error."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._start = 0
        # Appending keeps the child's next line at the end of the file even after the file was cut.
        self.descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def begin(self, title: str) -> None:
        """A new process starts: `last_lines` knows nothing of what was printed before."""
        self._write(f"=== {title} ===\n".encode())
        self._start = os.fstat(self.descriptor).st_size

    def trim(self) -> None:
        """Cuts off the oldest part of a log that has become too long. Lines printed meanwhile may be lost."""
        size = os.fstat(self.descriptor).st_size
        if size > MAX_BYTES:
            kept = os.pread(self.descriptor, KEPT_BYTES, size - KEPT_BYTES)
            os.ftruncate(self.descriptor, 0)
            self._write(kept)
            self._start = 0

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # on a full disk the log has a gap; the engine works on
            os.write(self.descriptor, data)

    def last_lines(self, count: int = 6, before: int | None = None) -> str:
        """The last lines that the present process printed, in one line; empty if it printed nothing.

        Args:
            count: how many lines at most.
            before: only those before this length of the log, in bytes.
        """
        size = os.fstat(self.descriptor).st_size
        size = size if before is None else min(size, before)
        start = max(self._start, size - TAIL_BYTES)
        text = os.pread(self.descriptor, max(0, size - start), start).decode(errors="replace")
        # Without those that underline the one before, as tracebacks do.
        lines = [" ".join(line.split()) for line in text.splitlines() if line.strip(" ^~")]
        return " | ".join(lines[-count:])[-LINE_CHARACTERS:]

    def close(self) -> None:
        """Closes the file."""
        os.close(self.descriptor)
