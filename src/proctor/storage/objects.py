"""A folder under a prefix of a bucket. A put is atomic there, and there is no rename and no appending."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from proctor.storage.base import StorageError, Version, Versioned
from proctor.storage.connect import DEFAULT_OPTIONS, Connection, StorageOptions, object_store
from proctor.storage.local import write_whole
from proctor.storage.replies import explained
from proctor.storage.segments import Segments

_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class ObjectFolder:
    """See `proctor.storage.base.Folder`. `url` has no slash at its end."""

    url: str
    options: StorageOptions = DEFAULT_OPTIONS

    @property
    def location(self) -> str:
        """Its URL."""
        return self.url

    @property
    def concurrency(self) -> int:
        """Many: what a request costs is mostly waiting."""
        return _AT_ONCE

    def below(self, name: str) -> Self:
        """The folder `name` inside this one."""
        return replace(self, url=f"{self.url}/{name}")

    @property
    def parent(self) -> Self:
        """The folder that this one lies in."""
        return replace(self, url=self.url.rpartition("/")[0])

    def names(self, name: str = "") -> list[str]:
        """What lies directly in the folder `name`."""
        folder = self._path(name)
        with _told("list", self._where(name)):
            found = obstore.list_with_delimiter(self._store, folder or None)
        files = [_last(entry["path"]) for entry in found["objects"] if entry["path"] != folder]
        return sorted([*files, *(f"{_last(path)}/" for path in found["common_prefixes"])])

    def exists(self, name: str) -> bool:
        """Whether there is an object of that name."""
        try:
            self.size(name)
        except FileNotFoundError:
            return False
        return True

    def size(self, name: str) -> int:
        """Bytes of an object."""
        with _told("look at", self._where(name)):
            return obstore.head(self._store, self._path(name))["size"]

    def read(self, name: str) -> bytes:
        """Content of an object."""
        return self.read_versioned(name).data

    def read_versioned(self, name: str) -> Versioned:
        """Content of an object with its version."""
        with _told("read", self._where(name)):
            found = obstore.get(self._store, self._path(name))
            data = found.bytes().to_bytes()
        return Versioned(data, Version(found.meta["e_tag"], found.meta["version"]))

    def open(self, name: str) -> pa.BufferReader:
        """The whole object in memory: parts are small, and one request is faster than several for pieces."""
        return pa.BufferReader(self.read(name))

    def write(self, name: str, data: bytes) -> None:
        """Puts an object."""
        with _told("write", self._where(name), missing=True):
            obstore.put(self._store, self._path(name), data)

    def write_file(self, name: str, make: Callable[[Path], None]) -> None:
        """Puts a temporary file, in pieces if it is large."""
        with tempfile.TemporaryDirectory(prefix="proctor-") as place:
            path = Path(place) / "file"
            make(path)
            with _told("write", self._where(name), missing=True):
                obstore.put(self._store, self._path(name), path)

    def create(self, name: str, data: bytes) -> Version | None:
        """Puts an object only if there is none."""
        return self._put_if(name, data, "create")

    def replace(self, name: str, data: bytes, version: Version) -> Version | None:
        """Puts an object only if it is still as it was."""
        return self._put_if(name, data, {key: value for key, value in version._asdict().items() if value is not None})

    def delete(self, name: str) -> None:
        """Removes an object."""
        with _told("delete", self._where(name), missing=True):
            obstore.delete(self._store, self._path(name))

    def move(self, name: str, to: str) -> None:
        """Copies an object, or all that lie below `name`, and then removes them: a crash in between loses nothing."""
        source, target = self._path(name), self._path(to)
        with _told("move", self._where(name), missing=True):
            below = [e["path"] for batch in obstore.list(self._store, source) for e in batch]
            paths = [path for path in below if path.startswith(f"{source}/")] or [source]
            for path in paths:
                obstore.copy(self._store, path, target + path.removeprefix(source))
            for path in paths:
                obstore.delete(self._store, path)

    def prepare(self, *names: str) -> None:
        """Nothing: a prefix need not be made."""

    def claimed(self) -> nullcontext[None]:
        """Nothing: no system sees who uses a bucket."""
        return nullcontext()

    def claimed_by_other(self) -> None:
        """Cannot be seen."""

    def hasty(self, seconds: float) -> Self:
        """The same folder with one try and a limit on every read."""
        return replace(self, options=replace(self.options, attempts=1, read_seconds=seconds, connect_seconds=seconds))

    def journal(self, name: str) -> Segments:
        """Numbered objects, each with the lines of about a second."""
        return Segments(self.below(name))

    def workspace(self, name: str) -> Path:
        """A directory among the temporary ones, the same for every process of this user on this machine."""
        path = self._workspaces / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def upload(self, name: str, since: float) -> None:
        """Puts files that are not there with the same size; those in a workspace only grow."""
        found = [path for path in sorted(self.workspace(name).iterdir()) if path.is_file()]
        recent = [path for path in found if path.stat().st_mtime >= since]
        there = {_last(entry["path"]): entry["size"] for entry in self._entries(name)} if recent else {}
        for path in recent:
            if there.get(path.name) != path.stat().st_size:
                self.write(f"{name}/{path.name}", path.read_bytes())

    def clear_workspaces(self) -> None:
        """Removes this machine's."""
        shutil.rmtree(self._workspaces, ignore_errors=True)

    @property
    def _workspaces(self) -> Path:
        return _own_directory() / hashlib.sha256(f"{self.options.endpoint} {self.url}".encode()).hexdigest()[:16]

    def local_copies(self, names: Sequence[str]) -> list[Path]:
        """Downloads what this process has not downloaded yet."""
        folder = Path(_copies(self.url).name)
        tags = {_last(entry["path"]): entry["e_tag"] for entry in self._entries("")} if names else {}
        pick = {name: hashlib.sha256(str(tags.get(name)).encode()).hexdigest()[:16] for name in names}

        def fetch(name: str) -> Path:
            path = folder / pick[name] / name
            if not path.exists():
                write_whole(path, lambda draft: _put(draft, self.read(name)))
            return path

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(fetch, names))

    def _entries(self, name: str) -> Sequence[Any]:
        with _told("list", self._where(name)):
            return obstore.list_with_delimiter(self._store, self._path(name) or None)["objects"]

    def _put_if(self, name: str, data: bytes, mode: Any) -> Version | None:
        try:
            with _told("write", self._where(name), missing=True):
                put = obstore.put(self._store, self._path(name), data, mode=mode)
        except (AlreadyExistsError, PreconditionError):
            return None
        return Version(put["e_tag"], put["version"])

    @property
    def _connection(self) -> Connection:
        return _connected(self.url, self.options)

    @property
    def _store(self) -> Any:
        return self._connection.store

    def _path(self, name: str) -> str:
        return "/".join(part for part in (self._connection.prefix, name.strip("/")) if part)

    def _where(self, name: str) -> str:
        return f"{self.url}/{name}" if name else self.url


_connected = lru_cache(maxsize=64)(object_store)
"""A store keeps connections open and should be used again."""


@lru_cache
def _copies(_url: str) -> tempfile.TemporaryDirectory[str]:
    """Removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="proctor-copies-", ignore_cleanup_errors=True)


def _own_directory() -> Path:
    """A directory in a place that others write to as well: nobody else may have made it."""
    path = Path(tempfile.gettempdir()) / f"proctor-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(errno.EACCES, "not a directory of this user alone", str(path))
    return path


@contextmanager
def _told(verb: str, where: str, *, missing: bool = False) -> Iterator[None]:
    """Turns what obstore raises into one clear line; conflicts of conditional writes pass as they are.

    Args:
        verb: what was tried.
        where: URL of the object.
        missing: a "not found" means the bucket, and is a failure of storage.
    """
    try:
        yield
    except (AlreadyExistsError, PreconditionError):
        raise
    except FileNotFoundError as error:
        if missing:
            raise StorageError(f"cannot {verb} {where}: {explained(error)}") from None
        raise FileNotFoundError(errno.ENOENT, "no such object", where) from None
    except (BaseError, OSError, ValueError) as error:
        raise StorageError(f"cannot {verb} {where}: {explained(error)}") from None


def _put(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
