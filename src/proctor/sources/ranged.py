"""A file of object storage that reads like one on disk: by ranges, with as much read-ahead as its reader's way of
reading earns."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, NamedTuple

from typing_extensions import Buffer, override

if TYPE_CHECKING:
    from proctor.sources.files import RemoteFolder, Version

FIRST_BYTES = 64 << 10
MOST_BYTES = 8 << 20
"""Bytes of the first range, and of the largest, that a request asks for on its own account."""


class _Window(NamedTuple):
    """Bytes that were fetched, and where they start."""

    start: int
    data: bytes

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class RangedFile(io.RawIOBase):
    """A seekable file over ranged reads; ``read(n)`` gives fewer than `n` bytes only at the end.

    What is read on from the end of a range doubles the next one, up to `MOST_BYTES` for all windows together, so that a
    stream costs few requests; a jump begins small again, so that looking here and there costs few bytes.

    Args:
        folder, name, version: the object; it is read only while it has this version.
        windows: how many ranges are kept: as many as there are places that are read in turn.
    """

    def __init__(self, folder: RemoteFolder, name: str, version: Version, *, windows: int = 1) -> None:
        self._folder, self._name, self._version = folder, name, version
        self._windows: list[_Window] = []  # the last used one at the end
        self._most_windows = windows
        self._at = 0

    @override
    def readable(self) -> bool:
        return True

    @override
    def seekable(self) -> bool:
        return True

    @override
    def tell(self) -> int:
        return self._at

    @override
    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._version.size}[whence]
        self._at = max(0, start + offset)
        return self._at

    @override
    def read(self, size: int | None = -1, /) -> bytes:
        end = self._version.size if size is None or size < 0 else min(self._version.size, self._at + size)
        parts = []
        while self._at < end:
            window = self._window(self._at, end)
            parts.append(window.data[self._at - window.start : end - window.start])
            self._at += len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @override
    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def _window(self, at: int, end: int) -> _Window:
        """The window that has the byte at `at`; a new one, unless it is there, reaches to `end` at least."""
        size = FIRST_BYTES
        for number, window in enumerate(self._windows):
            if window.start <= at < window.end:
                self._windows.append(self._windows.pop(number))
                return window
            if at == window.end:
                size = 2 * len(window.data)
                del self._windows[number]
                break
        size = max(end - at, min(size, MOST_BYTES // self._most_windows))
        stop = min(self._version.size, at + size)
        window = _Window(at, self._folder.fetch(self._name, at, stop, self._version.tag))
        self._windows = [*self._windows, window][-self._most_windows :]
        return window
