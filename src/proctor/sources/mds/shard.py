"""Opens a shard: finds its file, checks its digests, decompresses it, reads its row table.

A file that lies here is mapped. One that does not is read by ranges, if nothing but the wanted rows is needed of it.
What has to be whole (a compressed file, or one whose digests are checked) is fetched or unpacked into the cache of this
machine, or into an unnamed temporary file where there is none, and mapped from there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeVar

from proctor.rows import ErrorKind
from proctor.sources.mds.cells import Bytes
from proctor.sources.mds.compression import InflateError, inflate
from proctor.sources.mds.files import LARGEST_SHARD, DatasetFiles
from proctor.sources.mds.hashing import hexdigests
from proctor.sources.mds.index import ShardFile, ShardInfo
from proctor.sources.mds.layout import RowTable, ShardError, head_bytes, read_row_table, sound_row_table
from proctor.sources.mds.windows import MappedData, RangedData, ShardData
from proctor.storage.cache import DiskCache
from proctor.storage.scratch import Fill, Sink, unnamed

T = TypeVar("T")

_INFLATE_LIMIT = 1 << 30
_KEPT_OPEN = 2
_KEPT_TABLES = 8


@dataclass(frozen=True, slots=True)
class OpenShard:
    """A shard that is ready to be decoded: its uncompressed bytes (not read yet) and where its rows lie."""

    data: ShardData
    table: RowTable


@dataclass(frozen=True, slots=True)
class _Place:
    """A file of a shard, in one state of it, and how it is used.

    Attributes:
        name: the uncompressed or the compressed file, whichever is there.
        version: see `DatasetFiles.version`.
        verify: check its digests, and those of what is unpacked from it.
        cache: where whole copies are kept.
    """

    files: DatasetFiles
    info: ShardInfo
    name: str
    version: Hashable
    verify: bool
    cache: DiskCache | None

    @property
    def file(self) -> ShardFile:
        """What the index says of the file."""
        zipped = self.info.zipped
        return zipped if zipped is not None and self.name == zipped.basename else self.info.raw

    @property
    def is_zipped(self) -> bool:
        """Whether it is the compressed one."""
        return self.file is not self.info.raw

    def open(self) -> MappedData | RangedData:
        """The file's bytes."""
        return self.files.open(self.name, self.version)

    @property
    def key(self) -> str:
        """Names the shard's uncompressed bytes in the cache: where they come from, and what they were checked for."""
        hashes = (self.info.raw.hashes, self.file.hashes) if self.verify else ()
        unpacked = self.info.compression if self.is_zipped else None
        return repr((self.files.identity, self.name, self.version, unpacked, hashes))


def open_shard(
    files: DatasetFiles, info: ShardInfo, *, verify_hashes: bool, cache: DiskCache | None = None
) -> OpenShard:
    """Opens a shard of the dataset whose files these are.

    The last shards stay open in the process, so that reading one in many small groups fetches, checks and decompresses
    it (or fetches its row table) once.

    Raises:
        ShardError: no row of the shard can be had; ``read.corrupt`` (also a file outside of the dataset),
            ``read.missing``, or ``read.failed`` for what may pass, e.g. a full disk or a server that fails.
    """
    try:
        place = _locate(files, info, verify_hashes, cache)
        opened = _ranged(place) or _whole(place)
    except OSError as error:
        raise ShardError(ErrorKind.READ_FAILED, f"{info.raw.basename}: {error}") from error
    if isinstance(opened, OpenShard):
        return opened
    raise ShardError(opened.kind, opened.message)


def _locate(files: DatasetFiles, info: ShardInfo, verify: bool, cache: DiskCache | None) -> _Place:
    names = [file.basename for file in (info.raw, info.zipped) if file]
    for name in reversed(names) if files.is_remote else names:
        version = files.version(name)
        if version is not None:
            return _Place(files, info, name, version, verify, cache)
    below = f" below {files.where}" if files.is_remote else ""
    raise ShardError(ErrorKind.READ_MISSING, f"no shard file {' or '.join(names)}{below}")


@functools.lru_cache(maxsize=_KEPT_TABLES)
def _ranged(place: _Place) -> OpenShard | None:
    """The shard, if ranges of its file are enough to read rows. Looking into damage takes the whole of it."""
    if not place.files.is_remote or place.is_zipped or (place.verify and place.file.hashes):
        return None
    data, head = place.open(), head_bytes(place.info.samples)
    if isinstance(data, MappedData) or data.size < head:
        return None
    table = sound_row_table(data.head(head), data.size, place.info.samples)
    return None if table is None else OpenShard(data, table)


@functools.lru_cache(maxsize=_KEPT_OPEN)
def _whole(place: _Place) -> OpenShard | ShardError:
    # Damage is an answer worth keeping; it is returned, since a cache does not keep what is raised.
    info = place.info
    try:
        data = _uncompressed(place)
        return OpenShard(MappedData(data), read_row_table(data, info.samples, info.sizes))
    except ShardError as error:
        if error.kind.retryable:
            raise
        return ShardError(error.kind, f"{info.raw.basename}: {error.message}")


def _uncompressed(place: _Place) -> Bytes:
    """The shard's uncompressed bytes, with sound digests."""

    def check(data: Bytes) -> None:
        _check_digests(data, place.info.raw, place.verify)

    def kept(fill: Fill, size: int | None) -> Bytes:
        if place.cache is None:
            return unnamed(fill, check)
        return place.cache.get(place.key, size, fill, check)

    if place.is_zipped:
        return _once_more(place, lambda: kept(functools.partial(_unpack, place), place.info.raw.size))
    data = place.open()
    if isinstance(data, MappedData):
        check(data.data)
        return data.data
    return _once_more(place, lambda: kept(data.copy, data.size))


def _once_more(place: _Place, attempt: Callable[[], T]) -> T:
    """What took damage on its way is fetched a second time."""
    try:
        return attempt()
    except ShardError as error:
        if error.kind.retryable or not place.files.is_remote:
            raise
    return attempt()


def _unpack(place: _Place, to: Sink) -> None:
    limit = min(max(place.info.raw.size or 0, _INFLATE_LIMIT), LARGEST_SHARD)
    try:
        inflate(_once_more(place, lambda: _stored(place)), place.info.compression or "", to, limit)
    except InflateError as error:
        raise ShardError(ErrorKind.READ_CORRUPT, str(error)) from None


def _stored(place: _Place) -> Bytes:
    """The bytes of a compressed file, with sound digests."""

    def check(data: Bytes) -> None:
        _check_digests(data, place.file, place.verify)

    data = place.open()
    if isinstance(data, MappedData):
        check(data.data)
        return data.data
    return unnamed(data.copy, check)


def _check_digests(data: Bytes, file: ShardFile, wanted: bool) -> None:
    hashes = file.hashes if wanted else ()
    digests = hexdigests([name for name, _ in hashes], data.data)
    for name, expected in hashes:
        if digests[name] != expected.lower():
            raise ShardError(
                ErrorKind.READ_CORRUPT,
                f"{name} of {file.basename} is {digests[name]}, its index says {expected}: the file is damaged",
            )
