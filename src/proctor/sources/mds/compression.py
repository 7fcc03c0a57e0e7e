"""Whole-file compression of shards: zstd, gzip, brotli, bzip2 and (raw) snappy, with a bound on what comes out."""

from __future__ import annotations

import bz2
import gzip

import pyarrow as pa

from proctor.sources.mds.cells import Bytes
from proctor.storage.scratch import Sink

_CHUNK = 4 << 20

_LEVELS: dict[str, range] = {
    "br": range(12),
    "bz2": range(1, 10),
    "gz": range(10),
    "snappy": range(0),
    "zstd": range(1, 23),
}
_DEFAULT_LEVEL = {"br": 11, "bz2": 9, "gz": 9, "snappy": 0, "zstd": 3}
_ARROW_NAMES = {"br": "brotli", "bz2": "bz2", "gz": "gzip", "zstd": "zstd"}


class InflateError(Exception):
    """A compressed shard that is damaged or grows beyond its bound; the message says which."""


def parse_compression(text: str) -> tuple[str, int]:
    """Splits e.g. ``zstd:7`` into the file extension and the level (the format's default if none is given).

    Raises:
        ValueError: no such algorithm or level.
    """
    name, colon, level = text.partition(":")
    if name not in _LEVELS:
        raise ValueError(f"unknown compression {text!r}; MDS has {', '.join(_LEVELS)}")
    if not colon:
        return name, _DEFAULT_LEVEL[name]
    if not level.isdecimal() or int(level) not in _LEVELS[name]:
        raise ValueError(f"compression {text!r}: {name} has {_level_text(_LEVELS[name])}")
    return name, int(level)


def _level_text(levels: range) -> str:
    return f"levels {levels[0]} to {levels[-1]}" if levels else "no levels"


def deflate(text: str, data: bytes) -> bytes:
    """Compresses a whole shard file the way `text` (e.g. ``zstd:7``) says."""
    name, level = parse_compression(text)
    if name == "gz":
        return gzip.compress(data, level, mtime=0)
    if name == "bz2":
        return bz2.compress(data, level)
    codec = pa.Codec("snappy") if name == "snappy" else pa.Codec(_ARROW_NAMES[name], compression_level=level)
    return codec.compress(data, asbytes=True)


def inflate(stored: Bytes, name: str, out: Sink, limit: int) -> None:
    """Decompresses the bytes of a file (algorithm by extension `name`) into `out`.

    Raises:
        InflateError: the stream is damaged, or yields more than `limit` bytes.
        OSError: writing failed.
    """
    if name == "snappy":
        out.write(_inflate_snappy(stored.tobytes(), limit))
        return
    compressed = pa.BufferReader(pa.py_buffer(stored))
    done = 0
    with pa.CompressedInputStream(compressed, _ARROW_NAMES[name]) as stream:
        while chunk := _next_chunk(stream):
            done += len(chunk)
            if done > limit:
                raise InflateError(f"decompresses to more than {limit:,} bytes")
            out.write(chunk)


def _next_chunk(stream: pa.CompressedInputStream) -> bytes:
    try:
        return bytes(stream.read(_CHUNK))
    except (OSError, pa.ArrowException) as error:
        raise InflateError(f"cannot be decompressed: {error}") from None


def _inflate_snappy(data: bytes, limit: int) -> pa.Buffer:
    size = _snappy_size(data)
    if size > limit:
        raise InflateError(f"decompresses to more than {limit:,} bytes")
    try:
        return pa.Codec("snappy").decompress(data, size)
    except (OSError, pa.ArrowException) as error:
        raise InflateError(f"cannot be decompressed: {error}") from None


def _snappy_size(data: bytes) -> int:
    """Uncompressed size from the stream's preamble, a little-endian base-128 number of at most 32 bits."""
    size = 0
    for position, byte in enumerate(data[:5]):
        size |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return size
    raise InflateError("cannot be decompressed: no length at the start of the snappy stream")
