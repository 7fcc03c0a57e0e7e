"""Opens a shard: finds its file, maps it into memory, checks its digests, decompresses it, reads its row table."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Hashable
from dataclasses import dataclass

from proctor.rows import ErrorKind
from proctor.sources.mds.cells import Bytes
from proctor.sources.mds.compression import InflateError, inflate
from proctor.sources.mds.files import LARGEST_SHARD, DatasetFiles, mapped
from proctor.sources.mds.hashing import hexdigests
from proctor.sources.mds.index import ShardFile, ShardInfo
from proctor.sources.mds.layout import RowTable, ShardError, read_row_table

_INFLATE_LIMIT = 1 << 30
_KEPT_OPEN = 2


@dataclass(frozen=True, slots=True)
class OpenShard:
    """A shard that is ready to be decoded: its uncompressed bytes (mapped, not read) and where its rows lie."""

    data: Bytes
    table: RowTable


def open_shard(files: DatasetFiles, info: ShardInfo, *, verify_hashes: bool) -> OpenShard:
    """Opens a shard of the dataset whose files these are.

    The last two shards stay open in the process, so that reading one in many small groups fetches, checks and
    decompresses it once. A compressed shard is unpacked into an unnamed temporary file, which keeps memory free of
    whole shards.

    Raises:
        ShardError: no row of the shard can be had; ``read.corrupt`` (also a file outside of the dataset),
            ``read.missing``, or ``read.failed`` for what may pass, e.g. a full disk or a server that fails.
    """
    try:
        name, version = _locate(files, info)
        opened = _open(files, name, info, verify_hashes, version)
    except OSError as error:
        raise ShardError(ErrorKind.READ_FAILED, f"{info.raw.basename}: {error}") from error
    if isinstance(opened, OpenShard):
        return opened
    raise ShardError(opened.kind, opened.message)


def _locate(files: DatasetFiles, info: ShardInfo) -> tuple[str, Hashable]:
    """The file to read, the uncompressed or the compressed one, and its version."""
    names = [file.basename for file in (info.raw, info.zipped) if file]
    for name in reversed(names) if files.is_remote else names:
        version = files.version(name)
        if version is not None:
            return name, version
    place = f" below {files.where}" if files.is_remote else ""
    raise ShardError(ErrorKind.READ_MISSING, f"no shard file {' or '.join(names)}{place}")


@functools.lru_cache(maxsize=_KEPT_OPEN)
def _open(
    files: DatasetFiles, name: str, info: ShardInfo, verify_hashes: bool, version: Hashable
) -> OpenShard | ShardError:
    # Damage is an answer worth keeping; it is returned, since a cache does not keep what is raised.
    try:
        data = _uncompressed(files, name, info, verify_hashes, version)
        return OpenShard(data, read_row_table(data, info.samples, info.sizes))
    except ShardError as error:
        if error.kind.retryable:
            raise
        return ShardError(error.kind, f"{info.raw.basename}: {error.message}")


def _uncompressed(files: DatasetFiles, name: str, info: ShardInfo, verify_hashes: bool, version: Hashable) -> Bytes:
    if info.zipped is None or name != info.zipped.basename:
        return _stored(files, info.raw, verify_hashes, version)
    data = _unpack(_stored(files, info.zipped, verify_hashes, version), info)
    _check_digests(data, info.raw, verify_hashes)
    return data


def _stored(files: DatasetFiles, file: ShardFile, verify_hashes: bool, version: Hashable) -> Bytes:
    """The bytes of a file, with sound digests. If they took damage on their way, a second fetch is sound."""
    data = files.map(file.basename, version)
    try:
        _check_digests(data, file, verify_hashes)
    except ShardError:
        if not files.is_remote:
            raise
        data = files.map(file.basename, version)
        _check_digests(data, file, verify_hashes)
    return data


def _unpack(stored: Bytes, info: ShardInfo) -> Bytes:
    limit = min(max(info.raw.size or 0, _INFLATE_LIMIT), LARGEST_SHARD)
    with tempfile.TemporaryFile(prefix="proctor-shard-") as file:
        try:
            inflate(stored, info.compression or "", file, limit)
        except InflateError as error:
            raise ShardError(ErrorKind.READ_CORRUPT, str(error)) from None
        file.flush()
        return mapped(file)


def _check_digests(data: Bytes, file: ShardFile, wanted: bool) -> None:
    hashes = file.hashes if wanted else ()
    digests = hexdigests([name for name, _ in hashes], data.data)
    for name, expected in hashes:
        if digests[name] != expected.lower():
            raise ShardError(
                ErrorKind.READ_CORRUPT,
                f"{name} of {file.basename} is {digests[name]}, its index says {expected}: the file is damaged",
            )
