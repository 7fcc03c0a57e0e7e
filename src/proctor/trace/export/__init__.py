"""Writes the timeline of a trace for other tools: Perfetto, tables, a picture for a browser."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from proctor.rows import UserError
from proctor.trace.calling import called_as
from proctor.trace.timeline.timeline import Event, Kind, origin, timeline

if TYPE_CHECKING:
    from proctor.trace.trace import Trace

__all__ = ["Exported", "export"]

Writer = Callable[["Trace", Iterator[Event], Path, int], int]
"""Writes events to a file; the last argument is the time that becomes 0. Returns how many events it wrote."""


class Exported(NamedTuple):
    """What was written.

    Attributes:
        path: the file.
        format: ``chrome``, ``parquet``, ``csv``, ``jsonl`` or ``html``.
        events: how many events it holds.
        bytes: its size.
    """

    path: Path
    format: str
    events: int
    bytes: int


def export(
    trace: Trace,
    target: str | Path,
    *,
    force: bool = False,
    kinds: Collection[Kind] | None = None,
    since: int | None = None,
    until: int | None = None,
    name: str | None = None,
    device: int | None = None,
    process: int | None = None,
) -> Exported:
    """Writes the timeline of `trace` to `target`, in the format that its name ends with.

    ``.json`` and ``.json.gz`` are the Trace Event Format that Perfetto and chrome://tracing load; ``.parquet``,
    ``.csv`` and ``.jsonl`` are tables of events; ``.html`` is a picture in one file. The file appears whole or not at
    all. Nothing is written that a capture says about its environment.

    Args:
        trace: the trace.
        target: what to write; never the trace itself.
        force: replace `target` if it is there.
        kinds: which events, and so on: see `proctor.trace.timeline.timeline.timeline`.
        since: see there.
        until: see there.
        name: see there.
        device: see there.
        process: see there.

    Raises:
        UserError: `target` ends with none of these, is there, or cannot be written.
    """
    target = Path(target)
    form, writer = _writer(target)
    _check(trace, target, force=force)
    zero = origin(trace)
    events = timeline(trace, kinds=kinds, since=since, until=until, name=name, device=device, process=process)
    with _appearing(target, force=force) as unfinished:
        count = writer(trace, events, unfinished, zero)
        size = unfinished.stat().st_size
    return Exported(target, form, count, size)


def _writer(target: Path) -> tuple[str, Writer]:
    name = target.name.lower()
    if name.endswith((".json", ".json.gz")):
        from proctor.trace.export.chrome import write_chrome

        def write(trace: Trace, events: Iterator[Event], path: Path, zero: int) -> int:
            return write_chrome(trace, events, path, zero, compress=name.endswith(".gz"))

        return "chrome", write
    if name.endswith((".parquet", ".csv", ".jsonl")):
        from proctor.trace.export.tables import TABLE_WRITERS

        form = name.rpartition(".")[2]
        return form, lambda _, events, path, zero: TABLE_WRITERS[form](events, path, zero)
    if name.endswith(".html"):
        from proctor.trace.export.picture import write_picture

        return "html", write_picture
    raise UserError(
        "no format that this can write",
        where=str(target),
        fix="end it with .json[.gz], .parquet, .csv, .jsonl or .html",
    )


def _check(trace: Trace, target: Path, *, force: bool) -> None:
    if target.exists() and trace.path.exists() and target.samefile(trace.path):
        raise UserError("this is the trace itself", where=str(target), fix="name another file")
    if target.is_dir():
        raise UserError("this is a directory", where=str(target), fix="name a file in it")
    if target.exists() and not force:
        raise UserError("there is such a file already", where=str(target), fix="--force replaces it")
    if not target.parent.is_dir():
        raise UserError("no such directory", where=str(target.parent))


@contextlib.contextmanager
def _appearing(target: Path, *, force: bool) -> Iterator[Path]:
    """A temporary file that becomes `target` if all went well, and is gone otherwise."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:50]}.", suffix=".part", dir=target.parent)
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where=str(target)) from error
    os.close(handle)
    unfinished = Path(name)
    try:
        yield unfinished
        unfinished.chmod(0o666 & ~_umask())
        if force:
            unfinished.replace(target)
        else:  # a link fails where a file has appeared meanwhile; a rename would replace it
            _link(unfinished, target)
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", where=str(target)) from error
    finally:
        unfinished.unlink(missing_ok=True)


def _link(unfinished: Path, target: Path) -> None:
    try:
        target.hardlink_to(unfinished)
    except FileExistsError:
        raise UserError("there is such a file already", where=str(target), fix="--force replaces it") from None
    except OSError:  # file systems without links
        unfinished.replace(target)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


called_as(__name__, "export", home="proctor.trace.export")
