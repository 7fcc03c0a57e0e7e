"""The files of traces below the opened directories, and whether the browser reads one."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from proctor.rows import UserError
from proctor.rows.text import line_of
from proctor.storage.folder import LocalFolder
from proctor.view.browse.places import Opened, parts_of_path

MOST_BYTES = 4 << 30
"""Largest export that is opened; its pages are read as they are needed."""
MOST_TEXT = 256 << 20
"""Largest JSON, unpacked: it is read into memory."""
_REPORTS = (".nsys-rep", ".qdrep")
_LIMITED = "read it with `proctor trace`, which has no such limit"


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A file that may be read.

    Attributes:
        opened: name of the opened directory.
        path: below it.
        file: on this machine.
        size: bytes.
        changed: when, ns since the epoch.
    """

    opened: str
    path: str
    file: Path
    size: int
    changed: int

    @property
    def key(self) -> tuple[str, int, int]:
        """Another one as soon as the file has changed."""
        return str(self.file), self.size, self.changed


def trace_file(directories: Mapping[str, Opened], opened: str, path: str) -> TraceFile:
    """The trace at `path` in an opened directory.

    Raises:
        UserError: it is outside, behind a symbolic link, no file, too large, or a report that has to be exported first.
    """
    directory = directories.get(opened)
    if directory is None:
        raise UserError("no such directory is open", where=line_of(opened)[:80])
    *folders, name = parts_of_path(path) or [""]
    if not isinstance(directory.folder, LocalFolder):
        fix = "copy it to a disk, and open that directory"
        raise UserError(
            "a trace in object storage, which the browser does not read", where=line_of(path)[:200], fix=fix
        )
    folder = directory.below("/".join(folders))
    assert isinstance(folder, LocalFolder)
    file = folder.root / name
    try:
        seen = file.lstat()
    except FileNotFoundError as error:
        raise UserError("no such file", where=line_of(path)[:200]) from error
    _check(file, seen.st_mode, seen.st_size, line_of(path)[:200])
    return TraceFile(opened, path, file, seen.st_size, seen.st_mtime_ns)


def _check(file: Path, mode: int, size: int, where: str) -> None:
    if stat.S_ISLNK(mode):
        raise UserError("a symbolic link, which is not followed", where=where)
    if not stat.S_ISREG(mode):
        raise UserError("not an ordinary file", where=where)
    if file.suffix.lower() in _REPORTS:
        fix = f"nsys export --type sqlite {line_of(file.name)}, and open the .sqlite"
        raise UserError("a report, which has to be exported before the browser reads it", where=where, fix=fix)
    if size > MOST_BYTES:
        raise UserError(f"too large for the browser: {size:,} bytes", where=where, fix=_LIMITED)
