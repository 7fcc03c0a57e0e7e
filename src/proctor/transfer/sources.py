"""Files of a checkpoint, on a disk or below a URL, read at places of memory, and told when they change meanwhile."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, Protocol, final

from typing_extensions import override

from proctor.rows import UserError
from proctor.storage.connect import StorageOptions, is_url
from proctor.storage.remote import Remote, RemoteError
from proctor.transfer.errors import Reason, TransferError

_LOCAL = "local:"
_TICK_SECONDS = 3.0
_MOST_PARTS = 1024
"""As many as one system call takes (IOV_MAX)."""


class Source(Protocol):
    """One file that is open.

    Attributes:
        where: path or URL, for messages.
        nbytes: its length when it was opened.
        stamp: changes when the file does: see `stamp_of` and `Stat.tag`.
    """

    where: str
    nbytes: int
    stamp: str

    def read_into(self, start: int, targets: Sequence[memoryview], stop: threading.Event) -> None:
        """Fills `targets` one after the other with the bytes from `start` on.

        Args:
            start: place in the file.
            targets: writable.
            stop: another thread sets it to end this soon, as far as the system lets it.

        Raises:
            TransferError: ``CORRUPT``: it ended early or was replaced; ``EXCEPTION``: it cannot be read.
        """

    def check(self) -> None:
        """Raises: TransferError: ``CORRUPT``: the file is no longer the one that was opened."""

    def close(self) -> None:
        """Lets go of it."""


class Place(Protocol):
    """A folder of files.

    Attributes:
        location: path or URL, for messages.
        readers: how many threads are worth reading with.
    """

    location: str
    readers: int

    def names(self) -> list[str] | None:
        """Files that lie directly in it, in order; None where they cannot be listed (a web server, no right to)."""

    def open(self, name: str) -> Source | None:
        """Opens a file; None if there is none.

        Raises:
            UserError: it is no file, or may not be read.
            TransferError: storage fails.
        """


def place_of(path: str, options: StorageOptions | None = None) -> Place:
    """The folder at a path or URL.

    Raises:
        UserError: there is no such folder, or the URL is none that can be read from.
    """
    if is_url(path):
        remote = Remote(path.rstrip("/"), options or StorageOptions())
        remote.check()
        return RemotePlace(remote)
    if not Path(path).is_dir():
        raise UserError("no such folder", where=path, fix="give the folder of a checkpoint, or its URL")
    return LocalPlace(Path(path))


def read_all(source: Source) -> bytes:
    """The whole content.

    Raises:
        TransferError: see `Source`.
    """
    data = bytearray(source.nbytes)
    source.read_into(0, [memoryview(data)], threading.Event())
    source.check()
    return bytes(data)


def stamp_of(status: os.stat_result) -> str:
    """Device, inode, length, and times of the last change of a local file. The time of the inode's change is in it: a
    copy that keeps the other one (``cp -p``, ``rsync -t``) cannot keep that."""
    numbers = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return _LOCAL + ":".join(str(number) for number in numbers)


def settled(stamp: str, seconds: float) -> bool:
    """Whether a file's last change is long enough ago for its stamp to tell the next one: clocks of file systems tick
    (every 4 ms on a disk, every second or two on some network mounts), and a change within the same tick is not seen.
    A store's tag always is.

    Args:
        stamp: of `Source`.
        seconds: since the epoch, before the file was opened.
    """
    if not stamp.startswith(_LOCAL):
        return True
    changed = max(int(number) for number in stamp.split(":")[-2:])
    return changed / 1e9 < seconds - _TICK_SECONDS


@final
class LocalPlace(Place):
    """A directory. Four readers keep a fast disk busy; a reader that hangs in a dead network mount stays there."""

    def __init__(self, root: Path) -> None:
        self.location, self.readers = str(root), 4
        self._root = root

    @override
    def names(self) -> list[str] | None:
        try:
            return sorted(path.name for path in self._root.iterdir() if path.is_file())
        except OSError as error:
            raise _unreadable(self.location, error) from None

    @override
    def open(self, name: str) -> Source | None:
        path = self._root / name
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a named pipe must not block
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(str(path), error) from None
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise UserError("is no file", where=str(path))
        return LocalSource(path, fd)


@final
class LocalSource(Source):
    """A file on a disk. Takes over the descriptor."""

    def __init__(self, path: Path, fd: int) -> None:
        self.where = str(path)
        self._path, self._fd = path, fd
        status = os.fstat(fd)
        self.nbytes, self.stamp = status.st_size, stamp_of(status)

    @override
    def read_into(self, start: int, targets: Sequence[memoryview], stop: threading.Event) -> None:
        waiting = [target for target in targets if target.nbytes]
        while waiting and not stop.is_set():
            try:
                count = os.preadv(self._fd, waiting[:_MOST_PARTS], start)
            except OSError as error:
                message = f"{self.where}: cannot be read: {os.strerror(error.errno or 0)}"
                raise TransferError(Reason.EXCEPTION, message) from None
            if count == 0:
                self._changed(f"ends at byte {start:,} and had {self.nbytes:,}")
            start += count
            while waiting and count >= waiting[0].nbytes:
                count -= waiting.pop(0).nbytes
            if count:
                waiting[0] = waiting[0][count:]

    @override
    def check(self) -> None:
        try:
            now = stamp_of(self._path.stat())
        except OSError:
            now = "gone"
        if not now == self.stamp == stamp_of(os.fstat(self._fd)):
            self._changed("was changed or replaced")

    @override
    def close(self) -> None:
        os.close(self._fd)

    def _changed(self, how: str) -> NoReturn:
        raise TransferError(Reason.CORRUPT, f"{self.where}: {how} while it was read")


@final
class RemotePlace(Place):
    """The files below a URL."""

    def __init__(self, remote: Remote) -> None:
        self.location, self.readers = remote.url, 8
        self._remote = remote

    @override
    def names(self) -> list[str] | None:
        try:
            return sorted(name for name in self._remote.names() if "/" not in name) or None
        except RemoteError as error:
            if error.reason == "denied":  # reading may be allowed nevertheless
                return None
            raise _told(error) from None

    @override
    def open(self, name: str) -> Source | None:
        try:
            return RemoteSource(self._remote, name)
        except RemoteError as error:
            if error.reason == "missing":
                return None
            raise _told(error) from None


@final
class RemoteSource(Source):
    """A file in object storage. Every request names the tag that it had at first, so that a change is seen."""

    def __init__(self, remote: Remote, name: str) -> None:
        self.where = remote.url_of(name)
        self._remote, self._name = remote, name
        self._stat = remote.stat(name)
        self.nbytes, self.stamp = self._stat.size, f"{self._stat.size}:{self._stat.tag}"

    @override
    def read_into(self, start: int, targets: Sequence[memoryview], stop: threading.Event) -> None:
        nbytes = sum(target.nbytes for target in targets)
        if not nbytes:
            return
        # One request for neighbours, also where they go to different places.
        whole = targets[0] if len(targets) == 1 else memoryview(bytearray(nbytes))
        try:
            self._remote.read_into(self._name, start, whole, self._stat.tag, stop)
        except RemoteError as error:
            raise _told(error) from None
        if len(targets) > 1:
            at = 0
            for target in targets:
                target[:] = whole[at : at + target.nbytes]
                at += target.nbytes

    @override
    def check(self) -> None:
        try:
            changed = self._remote.stat(self._name) != self._stat
        except RemoteError as error:
            raise _told(error) from None
        if changed:
            raise TransferError(Reason.CORRUPT, f"{self.where}: was replaced while it was read")

    @override
    def close(self) -> None:
        pass


def _unreadable(where: str, error: OSError) -> UserError:
    return UserError(f"cannot be read: {os.strerror(error.errno or 0)}", where=where)


def _told(error: RemoteError) -> UserError | TransferError:
    """What the person can mend, and what storage did."""
    return UserError(error.message) if error.reason == "denied" else TransferError(Reason.EXCEPTION, error.message)
