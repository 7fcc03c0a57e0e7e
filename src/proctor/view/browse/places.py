"""The directories that were opened for browsing, and what lies in them: runs, fleets, audits, benches, traces.

Nothing outside an opened directory is reached: names that climb (``..``), hide (a dot in front) or start anew (``/``)
are refused, and below the opened directory itself no symbolic link is followed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from proctor.rows import UserError
from proctor.rows.text import line_of, told
from proctor.storage.connect import DEFAULT_OPTIONS, StorageOptions
from proctor.storage.folder import Folder, LocalFolder, Place, open_folder

Kind = Literal["run", "fleet", "audit", "bench", "trace", "refused"]

MOST_DEPTH = 6
"""Folders inside one another that are looked through."""
MOST_FOLDERS = 5_000
MOST_FOUND = 2_000
MOST_NAMES = 20_000
"""Names that are read of one folder of a local disk."""
_MARKS: dict[str, Kind] = {"spec.yaml": "run", "fleet.json": "fleet", "audit.json": "audit", "compile.json": "bench"}
_TRACES = (".nsys-rep", ".sqlite", ".pt.trace.json", ".pt.trace.json.gz")
_LONGEST = 1_000
_UNSPEAKABLE = "its name has characters that no address can hold"


class Found(NamedTuple):
    """Something to look at.

    Attributes:
        path: of its directory (of its file for a trace) below the opened one; empty for the opened one itself.
        why: for what is refused, the reason.
    """

    kind: Kind
    path: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Survey:
    """What lies in an opened directory, by path.

    Attributes:
        cut: why there may be more; empty if it is all.
    """

    found: tuple[Found, ...]
    cut: str = ""


@dataclass(frozen=True, slots=True)
class Opened:
    """A directory that was opened, under a name that addresses use."""

    name: str
    folder: Folder

    def below(self, path: str) -> Folder:
        """The folder at `path` in it.

        Raises:
            UserError: it is outside, behind a symbolic link, or no folder.
        """
        parts = parts_of_path(path)
        if isinstance(self.folder, LocalFolder):
            here = self.folder.root
            for part in parts:
                here = here / part
                if here.is_symlink():
                    raise UserError("a symbolic link, which is not followed", where=_shown(path))
            if not here.is_dir():
                raise UserError("no such directory", where=_shown(path))
        return self.folder.below("/".join(parts)) if parts else self.folder


def open_places(places: Sequence[Place], options: StorageOptions = DEFAULT_OPTIONS) -> list[Opened]:
    """Opens directories, local ones or in object storage; each gets a name of its own.

    Raises:
        UserError: a local one is not there, or a URL is none.
    """
    opened: list[Opened] = []
    for place in places:
        folder = open_folder(place, options)
        if isinstance(folder, LocalFolder):
            if not folder.root.is_dir():
                raise UserError("no such directory", where=str(folder.root))
            folder = LocalFolder(folder.root.resolve())
        base = folder.location.rstrip("/").rpartition("/")[2] or "files"
        taken = {one.name for one in opened}
        name = next(n for n in (base, *(f"{base}-{number}" for number in range(2, 10_000))) if n not in taken)
        opened.append(Opened(name, folder))
    return opened


def parts_of_path(path: str) -> list[str]:
    """The folders that a path below an opened directory names.

    Raises:
        UserError: it may lead elsewhere.
    """
    if not path:
        return []
    parts = path.split("/")
    odd = any(not part or part.startswith(".") or not part.isprintable() or "\\" in part for part in parts)
    if odd or len(path) > _LONGEST:
        raise UserError("no path below the opened directories", where=_shown(path))
    return parts


def survey(opened: Opened) -> Survey:
    """Looks through an opened directory, nearest first; folders that cannot be read are listed as refused.

    It does not look into runs, audits and benches. It ends at `MOST_DEPTH`, `MOST_FOLDERS` and `MOST_FOUND`, and says
    so.
    """
    found: list[Found] = []
    level, seen, cut = [""], 0, ""
    with ThreadPoolExecutor(opened.folder.concurrency) as pool:
        for depth in range(MOST_DEPTH + 2):
            if depth > MOST_DEPTH and level:
                cut = f"folders more than {MOST_DEPTH} deep are not looked into"
            elif len(found) >= MOST_FOUND or seen + len(level) > MOST_FOLDERS:
                cut = f"stopped after {seen:,} folders"
                level = level[: MOST_FOLDERS - seen] if len(found) < MOST_FOUND else []
            if depth > MOST_DEPTH or not level:
                break
            seen += len(level)
            looked = pool.map(lambda path: _look(opened.folder, path), level)
            level = []
            for here, inner in looked:
                found += here
                level += inner
    return Survey(tuple(sorted(found[:MOST_FOUND], key=lambda thing: (thing.path, thing.kind))), cut)


def _look(folder: Folder, path: str) -> tuple[list[Found], list[str]]:
    """What lies in one folder, and the folders that are to be looked into next."""
    try:
        names = _names(folder, path)
    except (OSError, UserError) as error:
        why = told(error) if isinstance(error, OSError) else line_of(str(error))
        return [Found("refused", path, why)], []
    found = list(_things(path, names))
    if any(thing.kind in ("run", "audit", "bench") for thing in found):
        return found, []
    folders = [name.rstrip("/") for name in names if name.endswith("/") and not name.startswith(".")]
    odd = [Found("refused", _join(path, line_of(name)), _UNSPEAKABLE) for name in folders if not _is_plain(name)]
    return [*found, *odd], [_join(path, name) for name in folders if _is_plain(name)]


def check_own(folder: Folder, names: Sequence[str], most_bytes: int) -> None:
    """Whether files and folders of a directory may be read: none is a symbolic link, no file is larger than
    `most_bytes`.

    Raises:
        UserError: one is, and which.
        OSError: storage failed.
    """
    there = None if isinstance(folder, LocalFolder) else set(folder.names())
    for name in names:
        where = f"{folder.location}/{name}"
        if isinstance(folder, LocalFolder):
            _check_kind(folder.root / name, where)
        size = _size(folder, name, there)
        if size > most_bytes:
            raise UserError(f"too large to be shown: {size:,} bytes", where=where)


def _check_kind(path: Path, where: str) -> None:
    """Whether there is a file, a folder or nothing: whoever opened a pipe would wait for ever."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if stat.S_ISLNK(mode):
        raise UserError("a symbolic link, which is not followed", where=where)
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise UserError("neither a file nor a folder", where=where)


def _size(folder: Folder, name: str, there: set[str] | None) -> int:
    """Bytes of a file; none of a folder, and of what is not there."""
    if isinstance(folder, LocalFolder):
        path = folder.root / name
        return path.stat().st_size if path.is_file() else 0
    # In a bucket each question is a request: what its one listing does not have is not asked for.
    if there is not None and "/" not in name and name not in there:
        return 0
    try:
        return folder.size(name)
    except FileNotFoundError:
        return 0


def _things(path: str, names: Sequence[str]) -> Iterator[Found]:
    for mark, kind in _MARKS.items():
        if mark in names:
            yield Found(kind, path)
    for name in names:
        if name.endswith(_TRACES) and _is_plain(name):
            yield Found("trace", _join(path, name))


def _names(folder: Folder, path: str) -> list[str]:
    """What lies in a folder, folders with ``/`` behind them; symbolic links and hidden names are left out."""
    if not isinstance(folder, LocalFolder):
        return folder.names(path)
    found: list[str] = []
    with os.scandir(Path(folder.root) / path) as entries:
        for entry in entries:
            if len(found) >= MOST_NAMES:
                raise UserError(f"more than {MOST_NAMES:,} names in one folder")
            if entry.name.startswith(".") or entry.is_symlink():
                continue
            if entry.is_dir(follow_symlinks=False):
                found.append(f"{entry.name}/")
            elif entry.is_file(follow_symlinks=False):
                found.append(entry.name)
    return sorted(found)


def _is_plain(name: str) -> bool:
    """Whether a name can stand in an address that leads back to it."""
    return bool(name) and not name.startswith(".") and name.isprintable() and "\\" not in name


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _shown(path: str) -> str:
    return line_of(path)[:200]
