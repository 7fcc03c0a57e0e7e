"""What was worked out about a file is kept outside the user's folder, under the hash of the file's content.

The directory is ``$PROCTOR_CACHE/traces``, or ``proctor/traces`` in the platform's cache directory. Losing it costs
time and nothing else: an entry that is damaged or cannot be written is made again.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import xxhash

from proctor.rows import UserError

T = TypeVar("T")
_ENTRY_BYTES = 32 << 20
"""An entry larger than this is not kept."""
_TOTAL_BYTES = 256 << 20
_CHUNK_BYTES = 4 << 20
_RACY_NS = 2_000_000_000
"""A file changed less than this before it was hashed may change again within the same tick of its clock."""
_NOWHERE = Path(os.devnull)
"""The home of a user without one: nothing can be made below a device, so that there is no cache."""
_LOST_SECONDS = 3600
"""A part file this old was left by a process that died."""


class _Known(msgspec.Struct, frozen=True):
    """The hash of a path's content, and by which signs one sees that the content is still the same."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    key: str


def cache_directory() -> Path:
    """Where this room keeps things; it need not exist."""
    chosen = os.environ.get("PROCTOR_CACHE")
    if chosen:
        return Path(chosen) / "traces"
    try:
        home = Path.home()
    except RuntimeError:
        home = _NOWHERE
    if not home.is_absolute():
        home = _NOWHERE
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "proctor" / "traces"
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))  # "All paths must be absolute" (XDG Base Directory)
    return (cache if cache.is_absolute() else home / ".cache") / "proctor" / "traces"


def content_key(path: Path) -> str:
    """The xxh3-128 of the file's content, in hex. Read once: size, times and inode tell whether it is still the same.

    The shortcut is that of git's index: an entry counts only while size, both times and inode are unchanged, and a file
    touched in the last two seconds gets none.

    Raises:
        UserError: the file cannot be read.
    """
    note = cache_directory() / "stats" / f"{xxhash.xxh3_64_hexdigest(os.fsencode(path.resolve()))}.json"
    try:
        with path.open("rb") as file:
            before = _signs(os.fstat(file.fileno()))
            known = _load(note, _Known)
            if known is not None and (known.size, known.mtime_ns, known.ctime_ns, known.inode) == before:
                return known.key
            started = time.time_ns()
            digest = xxhash.xxh3_128()
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
            after = _signs(os.fstat(file.fileno()))
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path)) from error
    key = digest.hexdigest()
    if before == after and max(before[1], before[2]) < started - _RACY_NS:
        _store(note, msgspec.json.encode(_Known(*before, key)))
    return key


def cached(key: str, kind: str, make: Callable[[], T], *, type: Any = Any) -> T:  # noqa: A002 (msgspec's word)
    """What `make` returned for this content before; otherwise what it returns now, kept for next time.

    Args:
        key: `content_key` of the file.
        kind: what it is, with a number to count up when its meaning changes: ``survey-1``. Letters, digits, hyphens.
        make: returns anything msgspec can write as JSON.
        type: what to read it back as.
    """
    if not re.fullmatch(r"[a-z0-9-]+", kind) or not re.fullmatch(r"[a-z0-9-]+", key):
        raise ValueError(f"not a name for a cache entry: {key!r}, {kind!r}")
    place = cache_directory() / "entries" / f"{key}.{kind}.json"
    found = _load(place, type)
    if found is not None:
        return found
    made = make()
    data = msgspec.json.encode(made)
    if len(data) <= _ENTRY_BYTES and _store(place, data):
        prune(place.parent, _TOTAL_BYTES, keep=place)
    return made


def prune(directory: Path, limit: int, *, keep: Path) -> None:
    """Removes the files of `directory` that were not used for longest, until what is left has at most `limit` bytes."""
    found: list[tuple[float, int, Path]] = []
    with contextlib.suppress(OSError):
        for path in directory.iterdir():
            with contextlib.suppress(OSError):  # another process may be pruning, too
                stat = path.stat()
                found.append((stat.st_mtime, stat.st_size, path))
    total = sum(size for _, size, _ in found)
    for changed, size, path in sorted(found):
        part = path.name.startswith(".part-")
        lost = part and changed < time.time() - _LOST_SECONDS
        if lost or (total > limit and path != keep and not part):
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size


@contextlib.contextmanager
def part_of(place: Path) -> Iterator[Path]:
    """A file to write, which takes the name `place` when the block ends well: whole, or not at all.

    Raises:
        OSError: the directory cannot be made or written.
    """
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(prefix=".part-", suffix=place.suffix, dir=place.parent)
    os.close(number)
    part = Path(name)
    try:
        yield part
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)


def _signs(stat: os.stat_result) -> tuple[int, int, int, int]:
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def _store(place: Path, data: bytes) -> bool:
    """Writes `data` under its checksum; False where that is not possible, which is no error."""
    try:
        with part_of(place) as part:
            part.write_bytes(xxhash.xxh3_64_hexdigest(data).encode() + b"\n" + data)
    except OSError:
        return False
    return True


def _load(place: Path, type_: Any) -> Any:
    """What was stored; None if there is nothing, or not what was stored."""
    try:
        check, _, data = place.read_bytes().partition(b"\n")
    except OSError:
        return None
    if check != xxhash.xxh3_64_hexdigest(data).encode():
        return None
    with contextlib.suppress(OSError):
        os.utime(place)
    try:
        return msgspec.json.decode(data, type=type_)
    except msgspec.MsgspecError:
        return None
