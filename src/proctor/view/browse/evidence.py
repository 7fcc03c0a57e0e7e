"""What supervisors leave in a run's ``stalls/``: the stacks of engines that stood still, and what engines printed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from proctor.results import RunDir
from proctor.rows import Event, UserError
from proctor.storage.folder import LocalFolder
from proctor.view.browse.places import parts_of_path

FOLDER = "stalls"
MOST_FILES = 500
MOST_BYTES = 256 << 10
"""So much of one file is shown: of a dump its beginning, of a log its end."""
_MOST_FETCHED = 16 << 20
"""Largest file that is fetched from object storage for that; a supervisor's logs are at most half of it."""
_KINDS = {".txt": "stack dump", ".log": "what the engine printed"}


class Evidence(NamedTuple):
    """A file of ``stalls/``.

    Attributes:
        what: in words.
        size: in bytes; None where it would have to be asked for.
        changed: when it was written, in seconds since the epoch; None likewise.
    """

    name: str
    what: str
    size: int | None = None
    changed: float | None = None


@dataclass(frozen=True, slots=True)
class Text:
    """What is shown of a file.

    Attributes:
        size: bytes of the whole file.
        left_out: bytes that are not shown.
        end: it is the end that is shown.
    """

    text: str
    size: int
    left_out: int
    end: bool


def evidence_of(run: RunDir) -> tuple[list[Evidence], int]:
    """The files, newest first, and how many more there are than `MOST_FILES`.

    Raises:
        OSError: storage failed.
    """
    found = sorted(_listed(run), key=lambda one: (-(one.changed or 0.0), one.name))
    return found[:MOST_FILES], max(0, len(found) - MOST_FILES)


def read_evidence(run: RunDir, name: str) -> Text:
    """A file of ``stalls/``.

    Raises:
        UserError: there is none of that name that may be read.
        OSError: storage failed.
    """
    if len(parts_of_path(name)) != 1 or not name.endswith(tuple(_KINDS)):
        raise UserError("no file that a supervisor leaves", where=name[:200])
    end = name.endswith(".log")
    try:
        data, size = _read(run, name, end=end)
    except FileNotFoundError as error:
        raise UserError("no such file", where=f"{FOLDER}/{name}") from error
    return Text(data.decode("utf-8", "replace"), size, size - len(data), end)


def dump_of(event: Event) -> str | None:
    """Name of the stack dump that an event tells of, None if it tells of none."""
    path = event.data.get("dump")
    name = path.rpartition("/")[2] if isinstance(path, str) else ""
    return name if name.endswith(".txt") and name.isprintable() and not name.startswith(".") else None


def evidence_in(message: str, engine: str, files: Sequence[Evidence]) -> list[Evidence]:
    """Of some files those that a row's error belongs to: the dump that its message names, and what its engine
    printed."""
    return [
        file
        for file in files
        if file.name == f"{engine}.log" or (file.name.endswith(".txt") and f"/{file.name}" in message)
    ]


def _listed(run: RunDir) -> Iterator[Evidence]:
    if not isinstance(run.folder, LocalFolder):
        yield from (Evidence(name, _what(name)) for name in run.folder.names(FOLDER) if _what(name))
        return
    try:
        entries = os.scandir(run.folder.root / FOLDER)
    except FileNotFoundError:
        return
    with entries:
        for entry in entries:
            if _what(entry.name) and not entry.name.startswith(".") and entry.is_file(follow_symlinks=False):
                seen = entry.stat(follow_symlinks=False)
                yield Evidence(entry.name, _what(entry.name), seen.st_size, seen.st_mtime)


def _what(name: str) -> str:
    return _KINDS.get(name[-4:], "") if name.isprintable() else ""


def _read(run: RunDir, name: str, *, end: bool) -> tuple[bytes, int]:
    """The part of a file that is shown, and its size."""
    path = f"{FOLDER}/{name}"
    if isinstance(run.folder, LocalFolder):
        return _read_local(run.folder, path, end=end)
    size = run.folder.size(path)
    if size > _MOST_FETCHED:
        raise UserError(f"too large to be shown: {size:,} bytes", where=path)
    data = run.folder.read(path)
    return (data[-MOST_BYTES:] if end else data[:MOST_BYTES]), len(data)


def _read_local(folder: LocalFolder, path: str, *, end: bool) -> tuple[bytes, int]:
    try:  # without waiting, should it be a pipe
        descriptor = os.open(folder.root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:  # above all ELOOP: a symbolic link
        raise UserError(f"not a file that may be read: {error.strerror or error}", where=path) from error
    try:
        seen = os.fstat(descriptor)
        if not stat.S_ISREG(seen.st_mode):
            raise UserError("not a file", where=path)
        return os.pread(descriptor, MOST_BYTES, max(0, seen.st_size - MOST_BYTES) if end else 0), seen.st_size
    finally:
        os.close(descriptor)
