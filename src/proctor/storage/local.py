"""A folder on a local (or mounted) disk."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

import xxhash

from proctor.storage.base import Busy, Version, Versioned

_CLAIM = ".lock"
_LOOK = 0.002
"""Seconds between two tries while others look at a lock."""


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Lets `write` make a file beside `path` under another name, syncs it to disk, and then names it `path`.

    The name under way starts with a dot and lacks the suffix, so that no reader of the directory takes it for data.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.parent / f".{path.stem}.{uuid.uuid4().hex}.draft"
    try:
        write(draft)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """See `proctor.storage.base.Folder`."""

    root: Path

    @property
    def location(self) -> str:
        """Its path."""
        return str(self.root)

    @property
    def concurrency(self) -> int:
        """One: a disk gains little from more."""
        return 1

    def below(self, name: str) -> Self:
        """The folder `name` inside this one."""
        return type(self)(self.root / name)

    @property
    def parent(self) -> Self:
        """The directory that this one lies in."""
        return type(self)(self.root.parent)

    def names(self, name: str = "") -> list[str]:
        """What lies directly in the folder `name`. Names that begin with a dot are not data and are left out."""
        found = []
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.root / name) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_file():
                    found.append(entry.name)
                elif entry.is_dir() and _holds_anything(entry.path):
                    found.append(f"{entry.name}/")
        return sorted(found)

    def exists(self, name: str) -> bool:
        """Whether there is a file of that name."""
        return (self.root / name).is_file()

    def size(self, name: str) -> int:
        """Bytes of a file."""
        return (self.root / name).stat().st_size

    def read(self, name: str) -> bytes:
        """Content of a file."""
        return (self.root / name).read_bytes()

    def read_versioned(self, name: str) -> Versioned:
        """Content of a file; its version follows from it."""
        data = self.read(name)
        return Versioned(data, _version(data))

    def open(self, name: str) -> str:
        """Its path."""
        return str(self.root / name)

    def write(self, name: str, data: bytes) -> None:
        """Writes a file whole or not at all."""
        write_whole(self.root / name, lambda draft: _put(draft, data))

    def write_file(self, name: str, make: Callable[[Path], None]) -> None:
        """Lets `make` write the draft."""
        write_whole(self.root / name, make)

    def create(self, name: str, data: bytes) -> Version | None:
        """Writes a file only if there is none."""
        with self._guarded(name):
            if (self.root / name).exists():
                return None
            self.write(name, data)
        return _version(data)

    def replace(self, name: str, data: bytes, version: Version) -> Version | None:
        """Writes a file only if it is still as it was."""
        with self._guarded(name):
            try:
                if self.read_versioned(name).version != version:
                    return None
            except FileNotFoundError:
                return None
            self.write(name, data)
        return _version(data)

    def delete(self, name: str) -> None:
        """Removes a file."""
        (self.root / name).unlink(missing_ok=True)

    def move(self, name: str, to: str) -> None:
        """Renames a file or a folder."""
        target = self.root / to
        target.parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).replace(target)

    def prepare(self, *names: str) -> None:
        """Makes directories."""
        for name in ("", *names):
            (self.root / name).mkdir(parents=True, exist_ok=True)

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Holds the lock of the kernel on the folder's lock file."""
        self.prepare()
        with (self.root / _CLAIM).open("a+") as file:
            while not _locks(file, fcntl.LOCK_EX):
                # Whoever only looks (`claimed_by_other`) shares the lock for a moment, and is no reason to give up.
                if not _locks(file, fcntl.LOCK_SH):
                    raise Busy(errno.EWOULDBLOCK, "held by another process", self.location)
                fcntl.flock(file, fcntl.LOCK_UN)
                time.sleep(_LOOK)
            yield

    def claimed_by_other(self) -> bool:
        """Whether the kernel's lock is taken."""
        try:
            with (self.root / _CLAIM).open("r+") as file:
                return not _locks(file, fcntl.LOCK_SH)
        except OSError:
            return False

    def hasty(self, _seconds: float) -> Self:
        """Itself: a disk answers or does not."""
        return self

    def journal(self, name: str) -> Lines:
        """One file of lines."""
        return Lines(self.root / f"{name}.jsonl")

    def workspace(self, name: str) -> Path:
        """The folder itself."""
        return self.root / name

    def upload(self, _name: str, _since: float) -> None:
        """Nothing: the workspace is the folder."""

    def clear_workspaces(self) -> None:
        """Nothing: they are in the folder."""

    def local_copies(self, names: Sequence[str]) -> list[Path]:
        """The files themselves."""
        return [self.root / name for name in names]

    @contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        """Only one process at a time looks at `name` and writes it."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_name(f".{path.name}.guard").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


@dataclass(frozen=True, slots=True)
class Lines:
    """A journal in one file, to which the system appends. Many processes may write a line each."""

    path: Path

    def append(self, line: bytes) -> None:
        """Appends a line in one write, on a line of its own even after one that a crash has cut short."""
        with self.path.open("ab+") as file:
            if file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
                line = b"\n" + line
            file.write(line + b"\n")

    def flush(self) -> None:
        """Nothing is kept back."""

    def lines(self) -> list[bytes]:
        """All lines."""
        return self.path.read_bytes().splitlines() if self.exists() else []

    def exists(self) -> bool:
        """Whether there is a file."""
        return self.path.is_file()


def _holds_anything(path: str) -> bool:
    """Whether a directory is not empty; one that has just gone is, and one that may not be read says so when it is."""
    try:
        with os.scandir(path) as entries:
            return any(True for _ in entries)
    except FileNotFoundError:
        return False
    except PermissionError:
        return True


def _version(data: bytes) -> Version:
    return Version(xxhash.xxh3_128_hexdigest(data))


def _put(draft: Path, data: bytes) -> None:
    draft.write_bytes(data)


def _locks(file: IO[str], how: int) -> bool:
    """Takes the kernel's lock on a file, alone or shared, if that can be had at once."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
