"""Bytes of a data file from some place on, also where it is compressed as a whole.

A compressed file has no way into its middle: what lies before a place has to be unpacked to get there. Blocks are read
in order, many to a file, so unpacking from the start for each of them would cost the square of their number. A process
therefore keeps the last few streams open where their readers left off, and a reader that wants to go on from there, or
from further on, takes one over: all groups of a file together then unpack it once in each process that reads some of
them. The other ways were an unpacked copy, which needs disk for whole files in every process, and groups of a whole
file, which are too large a unit of work and of loss. Memory is that of the decoder and a buffer.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import pyarrow as pa
from typing_extensions import Buffer, override

from proctor.sources.files import DataFile, Version
from proctor.sources.kept import Kept

_CODECS = {".gz": "gzip", ".tgz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
COMPRESSIONS = (".gz", ".zst", ".bz2")
"""Endings of files that are compressed as a whole."""
_BUFFER = 64 << 10
"""Bytes that are unpacked at a time; so much in front of damage is lost with it."""

_kept: Kept[tuple[DataFile, Version], BinaryIO] = Kept(2)


def is_compressed(name: str) -> bool:
    """Whether a file of that name is compressed as a whole."""
    return name.endswith(tuple(_CODECS))


@contextmanager
def reading(file: DataFile, planned: Version, offset: int = 0) -> Iterator[BinaryIO]:
    """The (unpacked) bytes of a file from `offset` on; ``tell()`` counts them.

    Raises:
        FileError: the file cannot be had, or is not the planned one.
        OSError: while reading, without ``errno`` if the compressed data is damaged.
    """
    version = file.same(planned)
    if not is_compressed(file.name):
        with file.open(version) as plain:
            plain.seek(offset)
            yield plain
        return
    stream = _taken(file, version, offset)
    try:
        advance(stream, offset)
        yield stream
    except BaseException:
        stream.close()
        raise
    _kept.put_back((file, version), stream)


def _taken(file: DataFile, version: Version, offset: int) -> BinaryIO:
    stream = _kept.take((file, version))
    if stream is not None and stream.tell() <= offset:
        return stream
    if stream is not None:
        stream.close()
    return io.BufferedReader(_Inflated(file, version), _BUFFER)


def advance(stream: BinaryIO, offset: int) -> bool:
    """Goes on to `offset`, which is not behind; whether the bytes reach so far (where that is seen: by unpacking)."""
    if stream.seekable():
        stream.seek(offset)
        return True
    while (left := offset - stream.tell()) > 0:
        if not stream.read(min(left, _BUFFER)):
            return False
    return True


class _Inflated(io.RawIOBase):
    """The unpacked bytes of a compressed file, forwards only."""

    def __init__(self, file: DataFile, version: Version) -> None:
        self._file = file.open(version)
        codec = next(codec for ending, codec in _CODECS.items() if file.name.endswith(ending))
        self._stream: Any = pa.CompressedInputStream(pa.PythonFile(self._file, "r"), codec)
        self._at = 0

    @override
    def readable(self) -> bool:
        return True

    @override
    def tell(self) -> int:
        return self._at

    @override
    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self._stream.read(len(view))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    @override
    def close(self) -> None:
        self._file.close()
        super().close()
