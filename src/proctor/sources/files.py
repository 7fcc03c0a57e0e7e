"""The data files of a source: below a local directory or below a URL, and the same for both.

A *folder* is where the paths in a data set start; what lies outside is not read for one of them. A `DataFile` is one of
its files. Both are small and picklable, and hold no connection and no open file.
"""

from __future__ import annotations

import io
import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, ClassVar, NamedTuple, Protocol

from pyroaring import BitMap64

from proctor.rows import ErrorKind
from proctor.sources.faults import FileError, local_fault, remote_fault

if TYPE_CHECKING:
    from proctor.storage.remote import Remote

_BUFFER = 1 << 20
CHANGED = "the file has changed since the run was planned"
NOT_UTF8 = "the name is not UTF-8: rename the file, or the folder that it lies in"


def shown(name: str) -> str:
    """A file's name as text that can be stored and printed: what is not UTF-8 in it is replaced."""
    return os.fsencode(name).decode("utf-8", "replace")


class Version(NamedTuple):
    """What tells a file from another one under its name: its bytes, and a tag that changes with its content."""

    size: int
    tag: str


class DataFolder(Protocol):
    """The files of a data set, by their names (relative, with ``/``). Picklable and hashable.

    Attributes:
        is_remote: whether bytes travel: many small files are then better fetched side by side.
    """

    is_remote: ClassVar[bool]

    def __hash__(self) -> int: ...

    def place(self, name: str) -> str:
        """The path or URL of a file, for messages."""

    def version(self, name: str) -> Version:
        """What the file is now.

        Raises:
            FileError: it cannot be had.
        """

    def open(self, name: str, version: Version, *, windows: int = 1) -> BinaryIO:
        """The file's bytes, to be read at any place; `windows` is the number of places that are read in turn."""

    def content(self, name: str) -> bytes:
        """All bytes of a file that the data names: a path that must not leave the folder, links included.

        Raises:
            FileError: they cannot be had.
        """

    def names(self, *, below: bool = True) -> list[str]:
        """Names of the files in the folder, and `below` it, in order of their bytes; hidden ones are left out.

        Raises:
            FileError: they cannot be listed.
        """


@dataclass(frozen=True)
class LocalFolder:
    """A directory."""

    root: Path
    is_remote: ClassVar[bool] = False

    def place(self, name: str) -> str:
        """The file's path."""
        return str(self.root / name)

    def version(self, name: str) -> Version:
        """Size, inode and time of change."""
        _refuse_zero_byte(name)
        try:
            seen = (self.root / name).stat()
        except OSError as error:
            raise local_fault(error) from None
        return Version(seen.st_size, f"{seen.st_ino:x}-{seen.st_mtime_ns:x}")

    def open(self, name: str, version: Version, *, windows: int = 1) -> BinaryIO:  # noqa: ARG002 (needs no windows)
        """The file as it is now."""
        try:
            return (self.root / name).open("rb", buffering=_BUFFER)
        except OSError as error:
            raise local_fault(error) from None

    def content(self, name: str) -> bytes:
        """All bytes of a file that is below the directory after all links."""
        _refuse_zero_byte(name)
        # realpath, not Path.resolve: that one raises RuntimeError for links in a circle, and only in some versions.
        home = Path(os.path.realpath(self.root))
        file = Path(os.path.realpath(home / name))
        if not file.is_relative_to(home):
            raise FileError(ErrorKind.READ_CORRUPT, "leads outside of the data's directory")
        try:
            if not stat.S_ISREG(file.stat().st_mode):
                raise FileError(ErrorKind.READ_CORRUPT, "not a regular file")
            return file.read_bytes()
        except FileError:
            raise
        except OSError as error:
            raise local_fault(error) from None

    def names(self, *, below: bool = True) -> list[str]:
        """Its files. A link to a directory is followed if that lies below this one, and refused otherwise."""
        found = []
        for base, folders, names in os.walk(self.root, onerror=_refuse, followlinks=True):
            folders[:] = [folder for folder in folders if below and not folder.startswith(".")]
            for folder in folders:
                self._check_link(Path(base, folder))
            prefix = os.path.relpath(base, self.root) + "/"
            found += [prefix.removeprefix("./") + name for name in names if not name.startswith(".")]
        return sorted(found, key=os.fsencode)

    def _check_link(self, folder: Path) -> None:
        """Raises `FileError` if a directory is a link that leads out of this one, or to one that the link lies in."""
        if not folder.is_symlink():
            return
        home, target = os.path.realpath(self.root), Path(os.path.realpath(folder))
        name = shown(str(folder.relative_to(self.root)))
        if not target.is_relative_to(home):
            what = "is a link to a directory outside of the data's: copy that here, or remove the link"
            raise FileError(ErrorKind.READ_CORRUPT, f"{name} {what}")
        above = [parent for parent in folder.parents if parent.is_relative_to(self.root)]
        if any(Path(os.path.realpath(parent)).is_relative_to(target) for parent in above):
            raise FileError(ErrorKind.READ_CORRUPT, f"{name} is a link to a directory that it lies in: remove it")


@dataclass(frozen=True)
class RemoteFolder:
    """The files below a URL."""

    remote: Remote
    is_remote: ClassVar[bool] = True

    def place(self, name: str) -> str:
        """The file's URL."""
        return self.remote.url_of(name) if name else self.remote.url

    def version(self, name: str) -> Version:
        """Size and tag of the object."""
        from proctor.storage.remote import RemoteError

        try:
            return Version(*self.remote.stat(name))
        except RemoteError as error:
            raise remote_fault(error) from None

    def open(self, name: str, version: Version, *, windows: int = 1) -> BinaryIO:
        """The object, as long as it has this version; fetched by ranges."""
        from proctor.sources.ranged import FIRST_BYTES, RangedFile

        return io.BufferedReader(RangedFile(self, name, version, windows=windows), FIRST_BYTES)

    def fetch(self, name: str, start: int, end: int, tag: str) -> bytes:
        """The bytes ``start .. end - 1`` of the object that has `tag`.

        Raises:
            FileError: they cannot be had.
        """
        from proctor.storage.remote import RemoteError

        try:
            return self.remote.read(name, start, end, tag)
        except RemoteError as error:
            raise remote_fault(error) from None

    def content(self, name: str) -> bytes:
        """All bytes of an object."""
        seen = self.version(name)
        return self.fetch(name, 0, seen.size, seen.tag)

    def names(self, *, below: bool = True) -> list[str]:
        """Objects below the URL; none on a web server, which cannot be asked."""
        from proctor.storage.remote import RemoteError

        try:
            names = self.remote.names()
        except RemoteError as error:
            raise remote_fault(error) from None
        wanted = (name for name in names if name and not _is_hidden(name) and (below or "/" not in name))
        return sorted(wanted, key=os.fsencode)


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a folder."""

    folder: DataFolder
    name: str

    @property
    def place(self) -> str:
        """Its path or URL, for messages."""
        return self.folder.place(self.name)

    def version(self) -> Version:
        """What it is now.

        Raises:
            FileError: it cannot be had.
        """
        return self.folder.version(self.name)

    def same(self, planned: Version) -> Version:
        """What it is now, if it still is the file that the run was planned with.

        An object is not asked for: reading it names its tag. A local file may have been copied, and is the same if it
        has as many bytes.

        Raises:
            FileError: it is another one, or cannot be had.
        """
        if self.folder.is_remote:
            return planned
        now = self.version()
        if now.size != planned.size:
            raise FileError(ErrorKind.READ_CORRUPT, CHANGED)
        return now

    def open(self, version: Version, *, windows: int = 1) -> BinaryIO:
        """Its bytes, as `DataFolder.open`."""
        return self.folder.open(self.name, version, windows=windows)


def ids_between(first: int, end: int) -> BitMap64:
    """The row ids ``first .. end - 1``."""
    ids = BitMap64()
    if end > first:
        ids.add_range(first, end)
    return ids


def _refuse_zero_byte(name: str) -> None:
    if "\0" in name:
        raise FileError(ErrorKind.READ_CORRUPT, "a name with a zero byte is that of no file")


def _refuse(error: OSError) -> None:
    raise local_fault(error)


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in PurePosixPath(name).parts)
