"""A directory of files that were fetched or unpacked once and serve all processes of a machine, never above its limit.

A file in it is either finished (named by the hash of its key) or being filled (with the suffix ``.part``). Whoever
fills one holds a lock on it, which the system takes back when the process dies: others wait for the lock and not for
the process. Room is reserved, under a lock of the whole directory, before anything is written, by giving the file its
size; what was used least recently goes first. A file may go while others use it: their maps of it stay whole.

Behind the content stand its length and its digest (xxh3_64), so that a file which took damage on the disk is found when
it is opened, and is made anew. Whatever goes wrong with the directory costs its use, not the data: the content is then
kept in a temporary file without a name.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import logging
import os
import stat
import struct
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import xxhash

from proctor.storage.scratch import Bytes, Check, Fill, mapped, unnamed

_PART = ".part"
_LOCK = "lock"
_TAIL = struct.Struct("<QQ")
_CHUNK = 4 << 20
_STEP = 64 << 20
_FREE_SHARE = 0.1
"""Share of the disk that is left free: near a full disk, Ray makes no more objects."""
_PAUSE = 0.02
_STUCK_SECONDS = 60.0
"""How long a file that another process fills may stay as it is, until it is not waited for any longer."""
_BUSY_SECONDS = 10.0

_log = logging.getLogger(__name__)


class _NoRoom(OSError):  # noqa: N818 (a state, not a fault)
    """The limit, or the disk, leaves no room for a file."""


class _Entry(NamedTuple):
    """A file of the directory."""

    path: Path
    size: int
    used: int


@dataclass(frozen=True)
class DiskCache:
    """Files by key in the directory `base`, at most `limit` bytes of them. Small, picklable and hashable.

    Attributes:
        limit: most bytes of all files together, unfinished ones and their tails included.
        base: where the user's own (private) directory is made; None is the system's directory for temporary files.
    """

    limit: int
    base: Path | None = None

    @property
    def home(self) -> Path:
        """The directory of this user's files."""
        return (self.base or Path(tempfile.gettempdir())) / f"proctor-cache-{os.geteuid()}"

    def get(self, key: str, size: int | None, fill: Fill, check: Check) -> Bytes:
        """The content that belongs to `key`, mapped: from the cache, or as `fill` writes it.

        Args:
            key: names the content and its version: the same key always means the same bytes.
            size: bytes that will probably be written, as far as known.
            fill: writes the content; it may be called twice.
            check: sees content that was just written; nothing of which it raises is kept.

        Raises:
            OSError: it can be kept neither in the cache nor in a temporary file.
        """
        try:
            found = self._get(key, size or 0, fill, check)
        except TimeoutError:  # of a caller's own deadline
            raise
        except _NoRoom:
            found = None
        except OSError as error:
            _told(f"the cache in {self.home} cannot be used: {error.strerror or error}")
            found = None
        return unnamed(fill, check) if found is None else found

    def _get(self, key: str, size: int, fill: Fill, check: Check) -> Bytes | None:
        """None: there is no room, or another process cannot or could not fill it."""
        if size + _TAIL.size > self.limit:
            return None
        path = _private(self.home) / hashlib.sha256(key.encode()).hexdigest()[:40]
        waited = False
        while (found := _finished(path)) is None and not waited:
            file, waited = _claimed(path.with_suffix(_PART))
            if file is not None:
                with file:
                    return self._filled(file, path, size, fill, check)
        return found

    def _filled(self, file: BinaryIO, path: Path, size: int, fill: Fill, check: Check) -> Bytes:
        """Fills the file, whose lock is ours, and lets it take its place."""
        part = path.with_suffix(_PART)
        try:
            sink = _Sink(self, file, size + _TAIL.size)
            fill(sink)
            file.flush()
            data = mapped(file, sink.written)
            check(data)
            file.write(_TAIL.pack(len(data), _digest(data)))
            file.flush()
            os.ftruncate(file.fileno(), len(data) + _TAIL.size)
            part.rename(path)
        except BaseException:
            part.unlink(missing_ok=True)  # nobody else removes or replaces it, as long as its lock is ours
            raise
        return data

    def reserve(self, file: BinaryIO, size: int) -> None:
        """Makes room for `file` to have `size` bytes, and gives it that size.

        Raises:
            _NoRoom: what may be removed is not enough.
        """
        with _locked(self.home / _LOCK):
            seen = os.fstat(file.fileno())
            disk = os.statvfs(self.home)
            spare = (disk.f_bavail - int(disk.f_blocks * _FREE_SHARE)) * disk.f_frsize
            finished, unfinished = _entries(self.home, seen.st_ino)
            taken = sum(entry.size for entry in finished) + unfinished
            lacking = max(taken + size - self.limit, size - seen.st_blocks * 512 - spare)
            if lacking > sum(entry.size for entry in finished):
                raise _NoRoom
            for entry in sorted(finished, key=lambda entry: entry.used):
                if lacking <= 0:
                    break
                entry.path.unlink(missing_ok=True)
                lacking -= entry.size
            os.ftruncate(file.fileno(), size)


class _Sink:
    """Writes into a file of the cache, after making room for it."""

    def __init__(self, cache: DiskCache, file: BinaryIO, size: int) -> None:
        self._cache, self._file, self._reserved = cache, file, size
        self.written = 0
        cache.reserve(file, size)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Takes all of `data`."""
        needed = self.written + len(data) + _TAIL.size
        if needed > self._reserved:
            self._reserved = max(needed, min(needed + min(_STEP, self._cache.limit // 16), self._cache.limit))
            self._cache.reserve(self._file, self._reserved)
        self._file.write(data)
        self.written += len(data)


def _private(home: Path) -> Path:
    """Makes the directory; refuses one that another user could write to."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    seen = home.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid():
        raise PermissionError(f"{home} belongs to another user")
    if seen.st_mode & 0o077:
        home.chmod(0o700)
    return home


def _finished(path: Path) -> Bytes | None:
    """The content of a finished file, which counts as used now; None if there is none, or a damaged one."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    with file:
        data = mapped(file)
        body = data[: max(0, len(data) - _TAIL.size)]
        if len(data) < _TAIL.size or _TAIL.unpack(data[len(body) :].tobytes()) != (len(body), _digest(body)):
            path.unlink(missing_ok=True)
            return None
        os.utime(file.fileno())
    return body


def _digest(data: Bytes) -> int:
    digest = xxhash.xxh3_64()
    for start in range(0, len(data), _CHUNK):
        digest.update(data[start : start + _CHUNK].data)
    return digest.intdigest()


def _claimed(part: Path) -> tuple[BinaryIO | None, bool]:
    """The unfinished file, locked and empty, and whether another process had it for a while.

    Without a file: it took another name, or is gone, since it was opened; or whoever fills it does not get on.
    """
    file = os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), "r+b")
    waited, seen, since = False, None, time.monotonic()
    while not _try_lock(file):
        waited = True
        state = os.fstat(file.fileno())
        if seen != (state.st_blocks, state.st_mtime_ns):
            seen, since = (state.st_blocks, state.st_mtime_ns), time.monotonic()
        if time.monotonic() - since > _STUCK_SECONDS:
            break
        time.sleep(_PAUSE)
    else:
        if _is_at(file, part):
            os.ftruncate(file.fileno(), 0)  # what a process left that died
            return file, waited
    file.close()
    return None, waited


def _try_lock(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(file: BinaryIO, path: Path) -> bool:
    """Whether the open file still is the one at `path`."""
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_ino == os.fstat(file.fileno()).st_ino
    return False


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds the lock of the directory: for a moment at a time, so whoever has it for long is stopped."""
    with path.open("ab") as file:
        give_up = time.monotonic() + _BUSY_SECONDS
        while not _try_lock(file):
            if time.monotonic() > give_up:
                raise _NoRoom
            time.sleep(_PAUSE)
        yield


def _entries(home: Path, own: int) -> tuple[list[_Entry], int]:
    """The finished files, and the bytes of the unfinished ones but `own`. Those of dead processes are removed."""
    finished, unfinished = [], 0
    with os.scandir(home) as found:
        items = list(found)
    for item in items:
        with contextlib.suppress(FileNotFoundError):
            seen = item.stat(follow_symlinks=False)
            if item.name == _LOCK or seen.st_ino == own:
                continue
            if not item.name.endswith(_PART):
                finished.append(_Entry(Path(item.path), seen.st_size, seen.st_mtime_ns))
            elif seen.st_size and not _removed_if_dead(Path(item.path)):  # one without bytes was only just made
                unfinished += seen.st_size
    return finished, unfinished


def _removed_if_dead(part: Path) -> bool:
    with part.open("rb") as file:
        if not _try_lock(file):
            return False
        if _is_at(file, part):
            part.unlink()
        return True


@functools.cache
def _told(message: str) -> None:
    """Says it once a process."""
    _log.warning("%s", message)
