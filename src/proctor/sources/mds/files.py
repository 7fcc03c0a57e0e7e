"""Where the files of a dataset lie: a local directory, or below a URL. All else is the same for both."""

from __future__ import annotations

import stat
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol
from urllib.parse import unquote, urlsplit

from proctor.rows import ErrorKind, UserError
from proctor.sources.mds.layout import ShardError
from proctor.sources.mds.windows import MappedData, RangedData, shard_error
from proctor.storage.scratch import mapped

if TYPE_CHECKING:
    from proctor.storage.connect import StorageOptions
    from proctor.storage.remote import Remote

INDEX_NAME = "index.json"
LARGEST_SHARD = (1 << 32) - 1
"""Most bytes of a shard file: its offsets are 32-bit words."""


class DatasetFiles(Protocol):
    """The files of a dataset, by their names in its index. Small, picklable and hashable; holds no data."""

    @property
    def is_remote(self) -> bool:
        """Whether bytes travel: a compressed file is then the better one, and a damaged one asked for again."""

    def __hash__(self) -> int: ...

    @property
    def where(self) -> str:
        """The dataset's directory or URL."""

    @property
    def identity(self) -> str:
        """Tells the dataset from all others that can be reached from here."""

    def index(self) -> bytes:
        """Content of ``index.json``.

        Raises:
            UserError: it cannot be had.
        """

    def version(self, name: str) -> Hashable | None:
        """What tells a file from another one that takes its name later; None if there is no such file.

        Raises:
            ShardError: there is one, but it cannot be used.
        """

    def open(self, name: str, version: Hashable) -> MappedData | RangedData:
        """A file, mapped into memory where it lies, or as something to read ranges of.

        Raises:
            ShardError: it cannot be had.
        """

    def names(self) -> list[str]:
        """Names of all files of the dataset, as far as they can be listed, in order."""


def dataset_files(path: str | Path, storage: StorageOptions | None = None) -> DatasetFiles:
    """The files of the dataset at `path`: a directory or URL, with or without the ``index.json`` in it.

    Raises:
        UserError: the URL is none that can be read.
    """
    text = str(path).removesuffix(f"/{INDEX_NAME}")
    if text.startswith("file:///"):
        return LocalFiles(Path(unquote(urlsplit(text).path)))
    if "://" not in text:
        return LocalFiles(Path(path).parent if Path(path).name == INDEX_NAME else Path(path))
    from proctor.storage.connect import StorageOptions
    from proctor.storage.remote import Remote

    remote = Remote(text.rstrip("/"), storage or StorageOptions())
    remote.check()
    return RemoteFiles(remote)


@dataclass(frozen=True)
class LocalFiles:
    """A directory. Links are followed as long as they stay inside."""

    root: Path
    is_remote: ClassVar[bool] = False

    @property
    def where(self) -> str:
        """The directory."""
        return str(self.root)

    @property
    def identity(self) -> str:
        """The directory; a file's version has the whole path."""
        return self.where

    def index(self) -> bytes:
        """Content of ``index.json``."""
        file = self.root / INDEX_NAME
        try:
            return file.read_bytes()
        except OSError as error:
            raise UserError(
                f"no MDS index: {error.strerror}", where=str(file), fix="give the dataset's directory"
            ) from None

    def version(self, name: str) -> Hashable | None:
        """Path behind all links, inode, size and time of change."""
        home = self.root.resolve()
        if not (home / name).exists():
            return None
        path = (home / name).resolve()
        if not path.is_relative_to(home):
            raise ShardError(ErrorKind.READ_CORRUPT, f"{name} leads outside of the dataset's directory")
        seen = path.stat()
        if not stat.S_ISREG(seen.st_mode):
            raise ShardError(ErrorKind.READ_CORRUPT, f"{name} is not a regular file")
        return path, seen.st_ino, seen.st_size, seen.st_mtime_ns

    def open(self, name: str, version: Hashable) -> MappedData:  # noqa: ARG002 (the version has the path behind links)
        """The file, mapped."""
        assert isinstance(version, tuple)
        with version[0].open("rb") as file:
            return MappedData(mapped(file))

    def names(self) -> list[str]:
        """All files below the directory."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file())


@dataclass(frozen=True)
class RemoteFiles:
    """The files below a URL."""

    remote: Remote
    is_remote: ClassVar[bool] = True

    @property
    def where(self) -> str:
        """The URL."""
        return self.remote.url

    @property
    def identity(self) -> str:
        """The URL and its server."""
        return self.remote.identity

    def index(self) -> bytes:
        """Content of ``index.json``."""
        from proctor.storage.remote import RemoteError

        try:
            seen = self.remote.stat(INDEX_NAME)
            return self.remote.read(INDEX_NAME, 0, seen.size, seen.tag)
        except RemoteError as error:
            fix = "give the URL of the dataset's folder" if error.reason == "missing" else None
            raise UserError(f"no MDS index: {error.message}", fix=fix) from None

    def version(self, name: str) -> Hashable | None:
        """Size and tag of the object."""
        from proctor.storage.remote import RemoteError

        try:
            return self.remote.stat(name)
        except RemoteError as error:
            if error.reason == "missing":
                return None
            raise shard_error(error) from None

    def open(self, name: str, version: Hashable) -> RangedData:
        """The object, of which nothing is fetched yet."""
        from proctor.storage.remote import Stat

        assert isinstance(version, Stat)
        if version.size > LARGEST_SHARD:
            raise ShardError(ErrorKind.READ_CORRUPT, f"{name} has {version.size:,} bytes, which no shard can have")
        return RangedData(self.remote, name, version)

    def names(self) -> list[str]:
        """All objects below the URL; none where they cannot be listed: on a web server, or without the permission."""
        from proctor.storage.remote import RemoteError

        try:
            return sorted(self.remote.names())
        except RemoteError as error:
            if error.reason == "denied":
                return []
            raise UserError(error.message) from None
