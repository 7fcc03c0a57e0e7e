"""Opens a shard file: finds it, checks its digests, decompresses it, maps it into memory and reads its row table."""

from __future__ import annotations

import functools
import mmap
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from proctor.rows import ErrorKind
from proctor.sources.mds.cells import Bytes
from proctor.sources.mds.compression import InflateError, inflate
from proctor.sources.mds.hashing import hexdigests
from proctor.sources.mds.index import ShardFile, ShardInfo
from proctor.sources.mds.layout import RowTable, ShardError, read_row_table

_INFLATE_LIMIT = 1 << 30
_LARGEST_SHARD = (1 << 32) - 1  # offsets are 32-bit words
_KEPT_OPEN = 2


@dataclass(frozen=True, slots=True)
class OpenShard:
    """A shard that is ready to be decoded: its uncompressed bytes (mapped, not read) and where its rows lie."""

    data: Bytes
    table: RowTable


def open_shard(root: Path, info: ShardInfo, *, verify_hashes: bool) -> OpenShard:
    """Opens a shard of the dataset in `root`.

    The last two shards stay open in the process, so that reading one in many small groups checks and decompresses it
    once. A compressed shard is unpacked into an unnamed temporary file, which keeps memory free of whole shards.

    Raises:
        ShardError: no row of the shard can be had; ``read.corrupt`` (also a file outside of `root`), ``read.missing``,
            or ``read.failed`` for what may pass, e.g. a full disk.
    """
    try:
        path, is_zipped = _locate(root, info)
        seen = path.stat()
        opened = _open(path, is_zipped, info, verify_hashes, (seen.st_ino, seen.st_size, seen.st_mtime_ns))
    except OSError as error:
        raise ShardError(ErrorKind.READ_FAILED, f"{info.raw.basename}: {error}") from error
    if isinstance(opened, OpenShard):
        return opened
    raise ShardError(opened.kind, opened.message)


def _locate(root: Path, info: ShardInfo) -> tuple[Path, bool]:
    """The file to read (the uncompressed one if it is there, else the compressed one), and whether it is compressed."""
    home = root.resolve()
    for file in (info.raw, info.zipped):
        if file is None or not (home / file.basename).exists():
            continue
        path = (home / file.basename).resolve()
        if not path.is_relative_to(home):
            raise ShardError(ErrorKind.READ_CORRUPT, f"{file.basename} leads outside of the dataset's directory")
        if not stat.S_ISREG(path.stat().st_mode):
            raise ShardError(ErrorKind.READ_CORRUPT, f"{file.basename} is not a regular file")
        return path, file is info.zipped
    names = " or ".join(file.basename for file in (info.raw, info.zipped) if file)
    raise ShardError(ErrorKind.READ_MISSING, f"no shard file {names}")


@functools.lru_cache(maxsize=_KEPT_OPEN)
def _open(
    path: Path, is_zipped: bool, info: ShardInfo, verify_hashes: bool, _version: tuple[int, int, int]
) -> OpenShard | ShardError:
    # Damage is an answer worth keeping; it is returned, since a cache does not keep what is raised.
    try:
        data = _uncompressed(path, is_zipped, info, verify_hashes)
        return OpenShard(data, read_row_table(data, info.samples, info.sizes))
    except ShardError as error:
        return ShardError(error.kind, f"{info.raw.basename}: {error.message}")


def _uncompressed(path: Path, is_zipped: bool, info: ShardInfo, verify_hashes: bool) -> Bytes:
    with path.open("rb") as file:
        stored = _map(file)
    if not is_zipped or info.zipped is None:
        _check_digests(stored, info.raw, verify_hashes)
        return stored
    _check_digests(stored, info.zipped, verify_hashes)
    data = _unpack(path, info)
    _check_digests(data, info.raw, verify_hashes)
    return data


def _unpack(path: Path, info: ShardInfo) -> Bytes:
    limit = min(max(info.raw.size or 0, _INFLATE_LIMIT), _LARGEST_SHARD)
    with tempfile.TemporaryFile(prefix="proctor-shard-") as file:
        try:
            inflate(path, info.compression or "", file, limit)
        except InflateError as error:
            raise ShardError(ErrorKind.READ_CORRUPT, str(error)) from None
        file.flush()
        return _map(file)


def _map(file: BinaryIO) -> Bytes:
    """The file's bytes, mapped. The map lives as long as any array made of it."""
    if file.seek(0, 2) == 0:
        return np.zeros(0, np.uint8)
    return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def _check_digests(data: Bytes, file: ShardFile, wanted: bool) -> None:
    hashes = file.hashes if wanted else ()
    digests = hexdigests([name for name, _ in hashes], data.data)
    for name, expected in hashes:
        if digests[name] != expected.lower():
            raise ShardError(
                ErrorKind.READ_CORRUPT,
                f"{name} of {file.basename} is {digests[name]}, its index says {expected}: the file is damaged",
            )
