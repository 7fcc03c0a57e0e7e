"""Opens a trace: finds out what a file is, and says plainly what is wrong with one that is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from proctor.rows import UserError
from proctor.trace.model import Note, Origin
from proctor.trace.reading.assembling import assemble
from proctor.trace.reading.cache import cached, content_key
from proctor.trace.reading.guard import connect
from proctor.trace.reading.notes import beside
from proctor.trace.reading.survey import Survey
from proctor.trace.trace import UNREADABLE, Trace, explained

_SQLITE_HEADER = b"SQLite format 3\x00"
_GZIP_HEADER = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_REPORTS = (".nsys-rep", ".qdrep")
_DATABASES = (".sqlite", ".sqlite3", ".db")
_WANTED = "give a .sqlite, a .nsys-rep or a .json[.gz] of the PyTorch profiler"
_AGAIN = "export it again with `nsys export --type sqlite`"
_KEPT_FROM = 32 << 20
"""A survey of a smaller file takes less time than looking it up."""


def open_trace(path: str | Path, *, most_text: int | None = None) -> Trace:
    """Opens an Nsight Systems export (``.sqlite``), a report (``.nsys-rep``) or a PyTorch-profiler trace.

    The file is never written to, and nothing is put beside it.

    Args:
        path: the file.
        most_text: bytes of JSON, once unpacked, from which on a PyTorch-profiler trace is refused: it is read into
            memory. None: what no profiler writes.

    Raises:
        UserError: there is no such file, or it is no trace.
    """
    path = Path(path)
    head = _head(path)
    if path.suffix.lower() in _REPORTS:
        from proctor.trace.reading.reports import open_report

        return open_report(path)
    if head.startswith(_SQLITE_HEADER):
        return open_export(path, path)
    if head.startswith(_GZIP_HEADER) or head.removeprefix(_BYTE_ORDER_MARK).lstrip()[:1] in (b"{", b"["):
        from proctor.trace.reading.kineto import open_kineto

        return open_kineto(path, most_text=most_text)
    raise _no_trace(path, head)


def open_export(file: Path, named: Path, notes: Sequence[Note] = ()) -> Trace:
    """Opens an export at `file`, read-only and immutable: SQLite then takes no lock and writes no side file.

    Args:
        file: the database.
        named: what the user named, for messages.
        notes: what is known already about how the file came to be.

    Raises:
        UserError: the file is damaged, or a database that is no export.
    """
    _check_length(file, named)
    try:
        connection = connect(file)
    except UNREADABLE as error:
        raise explained(error, named) from error
    return assemble(
        connection,
        path=named,
        origin=Origin.NSYS,
        keep=lambda make: _kept(file, make),
        notes=[*notes, *beside(_beside(file))],
    )


def _kept(file: Path, make: Callable[[], Survey]) -> Survey:
    """The survey of a large file is kept; it is the part of opening that takes as long as the file is large."""
    if file.stat().st_size < _KEPT_FROM:
        return make()
    return cached(content_key(file), "survey-2", make, type=Survey)


def _head(path: Path) -> bytes:
    """The first bytes of a file.

    Raises:
        UserError: there are none.
    """
    where = str(path)
    if path.is_dir():
        raise UserError("this is a directory", where=where, fix=_WANTED)
    if not path.exists():
        raise UserError("no such file", where=where)
    if not path.is_file():
        raise UserError("not an ordinary file", where=where, fix=_WANTED)
    try:
        with path.open("rb") as file:
            head = file.read(100)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=where) from error
    if not head:
        raise UserError("the file is empty", where=where, fix=_AGAIN)
    return head


def _no_trace(path: Path, head: bytes) -> UserError:
    where, suffix = str(path), path.suffix.lower()
    if not head.strip(b"\x00"):
        return UserError("the file begins with zeros: an export that was interrupted", where=where, fix=_AGAIN)
    if suffix == ".qdstrm":
        return UserError("a recording that was not finished", where=where, fix="import it with nsys's QdstrmImporter")
    if suffix in _DATABASES:
        return UserError("not a SQLite database, whatever its name says", where=where, fix=_AGAIN)
    return UserError("this is no trace", where=where, fix=_WANTED)


def _check_length(file: Path, named: Path) -> None:
    """A database that was cut off would be read as far as it goes, and figures would be wrong in silence.

    Source: SQLite's file format, "The Database Header": page size at 16, pages at 28, which hold while the change
    counter at 24 equals the version at 92.
    """
    with file.open("rb") as opened:
        head = opened.read(100)
    size = int.from_bytes(head[16:18], "big")
    pages = int.from_bytes(head[28:32], "big")
    expected = (65536 if size == 1 else size) * pages
    found = file.stat().st_size
    if len(head) == 100 and head[24:28] == head[92:96] and found < expected:
        raise UserError(
            f"the file is cut off: it says it has {expected:,} bytes, and has {found:,}",
            where=str(named),
            fix=f"copy it again, or {_AGAIN}",
        )


def _beside(file: Path) -> dict[str, int]:
    """Sizes of the files beside a database in which SQLite keeps what is not in it yet."""
    found: dict[str, int] = {}
    for suffix in ("-wal", "-journal"):
        path = file.with_name(file.name + suffix)
        if path.is_file():
            found[suffix] = path.stat().st_size
    return found
