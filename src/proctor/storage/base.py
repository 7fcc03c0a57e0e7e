"""What a run directory needs of the place it lies in, whatever that place is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self


class StorageError(OSError):
    """Storage that failed after all tries: one line with what was asked, where, and what came back."""


class Busy(OSError):  # noqa: N818 (a state, not a fault)
    """Another process of this machine holds the folder."""


class Version(NamedTuple):
    """Identity of one state of a file, for a conditional replacement. Which of the two counts depends on the store."""

    e_tag: str | None
    version: str | None = None


class Versioned(NamedTuple):
    """A file's bytes, and which state of it they are."""

    data: bytes
    version: Version


class Journal(Protocol):
    """Lines that only ever grow. A line is bytes without a line end."""

    def append(self, line: bytes) -> None:
        """Adds a line. Where appending is not possible it is kept back for about a second, and then tried until it is
        written.

        Raises:
            OSError: it could not be written.
        """

    def flush(self) -> None:
        """Writes every line that is kept back.

        Raises:
            OSError: it could not be written; the lines are still kept.
        """

    def lines(self) -> list[bytes]:
        """All lines written so far by anyone, oldest first; one cut short by a crash is among them."""

    def exists(self) -> bool:
        """Whether anything was ever written."""


class Folder(Protocol):
    """Files by name, relative to a root, in a local directory or under a prefix of a bucket.

    A name is a path with ``/`` between its parts. A file appears whole or not at all. Methods raise
    `FileNotFoundError` for a file that is not there, and another `OSError` (for object storage a `StorageError`, after
    all tries) when storage fails.
    """

    @property
    def location(self) -> str:
        """Path or URL of the root."""

    @property
    def concurrency(self) -> int:
        """How many files are worth reading at once."""

    def below(self, name: str) -> Self:
        """The folder `name` inside this one."""

    @property
    def parent(self) -> Self:
        """The folder that this one lies in."""

    def names(self, name: str = "") -> list[str]:
        """What lies directly in the folder `name`, in order; folders (never empty ones) end with ``/``."""

    def exists(self, name: str) -> bool:
        """Whether there is a file of that name."""

    def size(self, name: str) -> int:
        """Bytes of a file."""

    def read(self, name: str) -> bytes:
        """Content of a file."""

    def read_versioned(self, name: str) -> Versioned:
        """Content of a file with its version."""

    def open(self, name: str) -> Any:
        """A file as `pyarrow.parquet` takes it: a path, or a buffer with the whole of it."""

    def write(self, name: str, data: bytes) -> None:
        """Writes a file, over an earlier one if there is one."""

    def write_file(self, name: str, make: Callable[[Path], None]) -> None:
        """Lets `make` write a local file at the path it is given, and takes that over as `name`."""

    def create(self, name: str, data: bytes) -> Version | None:
        """Writes a file only if there is none; None if there is one."""

    def replace(self, name: str, data: bytes, version: Version) -> Version | None:
        """Writes a file only if what is there is still `version`; None if it is not."""

    def delete(self, name: str) -> None:
        """Removes a file; one that is gone already is no error."""

    def move(self, name: str, to: str) -> None:
        """Renames a file, or a folder with all it holds."""

    def prepare(self, *names: str) -> None:
        """Makes the root and the folders `names`, where folders have to be made."""

    def claimed(self) -> AbstractContextManager[None]:
        """Holds the folder against other processes of this machine, as far as its system can; the system lets go when
        the process dies.

        Raises:
            Busy: another process holds it.
        """

    def claimed_by_other(self) -> bool | None:
        """Whether another process of this machine holds the folder now; None if that cannot be seen from here."""

    def hasty(self, seconds: float) -> Self:
        """The same folder for requests that are worth nothing after `seconds`: tried once, with that limit."""

    def journal(self, name: str) -> Journal:
        """The journal `name` (no suffix)."""

    def workspace(self, name: str) -> Path:
        """A local directory that stands for the folder `name` on this machine: itself, if it is local."""

    def upload(self, name: str, since: float) -> None:
        """Takes the files of the workspace `name` that were written after `since` (seconds since the epoch) into the
        folder, as far as they are not there yet; nothing to do if it is local."""

    def clear_workspaces(self) -> None:
        """Removes what an earlier use of this folder's name left in workspaces outside of it."""

    def local_copies(self, names: Sequence[str]) -> list[Path]:
        """Local files with the content of `names`, for readers that know only paths. Not to be written to; they last
        as long as this process."""
