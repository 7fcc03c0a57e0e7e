"""PyTorch-profiler (Kineto) traces, ``.json`` and ``.json.gz``: read into memory, then through the same views.

Of a trace of some hundred megabytes the text is in memory once; events are decoded one by one, and only those that are
wanted. ``metadata``, where some tools keep the environment of the profiled process, is never decoded.
"""

from __future__ import annotations

import gzip
import re
import sqlite3
import zlib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from proctor.rows import UserError
from proctor.trace.model import GraphMode, Note, Origin, Severity
from proctor.trace.reading.assembling import assemble
from proctor.trace.reading.guard import prepared
from proctor.trace.reading.kineto_events import Device, Distributed, Document, Head, Label
from proctor.trace.reading.kineto_tables import Tables
from proctor.trace.trace import Trace

T = TypeVar("T")
_LARGEST = 8 << 30
_CHUNK = 1 << 24
_MOST_TIMES = 200
"""Text that grows to more than this when it is unpacked is no trace: each event has times and numbers of its own."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_AGAIN = "export it again with prof.export_chrome_trace()"
_NO_NUMBER = re.compile(rb"(?<=[:\[,\s])-?(?:inf(?:inity)?|nan)(?=\s*[,\]}])", re.IGNORECASE)
_LEFT_OUT = {"python_function": "frames of Python", "gpu_user_annotation": "annotations as drawn on the GPU"}


def open_kineto(path: Path, *, most_text: int | None = None) -> Trace:
    """Opens a trace of the PyTorch profiler.

    Args:
        path: the file.
        most_text: bytes of JSON that are read at the most; None: 8 GiB.

    Raises:
        UserError: the file is cut off, no JSON, no such trace, or too large.
    """
    document = _document(path, _LARGEST if most_text is None else most_text)
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    try:
        tables = Tables(prepared(connection))
        counts, unreadable = _fill(tables, document)
        if not tables.wanted:
            raise _foreign(path)
        tables.devices(_part(document.devices, list[Device]) or [])
        tables.close()
    except BaseException:
        connection.close()
        raise
    nodes = connection.execute("SELECT EXISTS (SELECT 1 FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE graphNodeId > 0)")
    mode = GraphMode.NODE if nodes.fetchone()[0] else GraphMode.UNKNOWN
    notes = _notes(counts, unreadable)
    return assemble(connection, path=path, origin=Origin.KINETO, notes=notes, tool=_tool(document), graph_mode=mode)


def _fill(tables: Tables, document: Document) -> tuple[dict[str, int], int]:
    """Reads every event; returns how many there are by category, and how many could not be read."""
    counts: dict[str, int] = {}
    unreadable = 0
    head = msgspec.json.Decoder(Head)
    for raw in document.events:
        try:
            event = head.decode(raw)
            if event.ph == "M":
                tables.label(msgspec.json.decode(raw, type=Label))
                continue
            category = event.cat or ""
            counts[category] = counts.get(category, 0) + 1
            read = tables.reader(category) if event.ph == "X" else None
            if read is not None:
                read(raw)
                tables.wanted[category] = tables.wanted.get(category, 0) + 1
        except (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError):
            unreadable += 1
    return counts, unreadable


def _document(path: Path, largest: int) -> Document:
    data = _text(path, largest)
    try:
        return _decoded(data)
    except RecursionError as error:
        raise UserError("JSON that is nested too deep for a trace", where=str(path), fix=_AGAIN) from error
    except msgspec.DecodeError as error:
        if isinstance(error, msgspec.ValidationError) or "truncated" in str(error):
            raise _unreadable(path, error) from error
    # Some versions wrote `inf` for the bandwidth of a copy that took no time: no JSON, but plain enough.
    try:
        return _decoded(_NO_NUMBER.sub(b"null", data))
    except msgspec.DecodeError as error:
        raise _unreadable(path, error) from error


def _decoded(data: bytes | bytearray) -> Document:
    if data[:100].lstrip()[:1] == b"[":  # the bare list of events
        return Document(msgspec.json.decode(data, type=list[msgspec.Raw]))
    return msgspec.json.decode(data, type=Document)


def _text(path: Path, largest: int) -> bytes | bytearray:
    """The JSON text.

    Raises:
        UserError: it cannot be read, is cut off, or too large.
    """
    data = bytearray()
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            source: Any = gzip.GzipFile(fileobj=file) if zipped else file
            most = min(largest, max(_CHUNK, _MOST_TIMES * path.stat().st_size))
            while chunk := source.read(_CHUNK):
                data += chunk
                if len(data) > most:
                    raise _too_large(path, most, largest)
    except EOFError as error:
        raise UserError("the .gz file is cut off", where=str(path), fix=f"copy it again, or {_AGAIN}") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"the .gz file is damaged: {error}", where=str(path), fix="copy it again") from error
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path)) from error
    del data[: len(_BYTE_ORDER_MARK) if data.startswith(_BYTE_ORDER_MARK) else 0]
    return data


def _too_large(path: Path, most: int, largest: int) -> UserError:
    if most < largest:
        what = f"unpacked it has more than {most >> 20:,} MiB, which is more than {_MOST_TIMES} times its size"
        return UserError(f"no trace: {what}", where=str(path), fix=_AGAIN)
    size = f"{most >> 30} GiB" if most >= 1 << 30 else f"{most >> 20:,} MiB"
    return UserError(f"more than {size} of JSON", where=str(path), fix="profile fewer steps")


def _unreadable(path: Path, error: msgspec.DecodeError) -> UserError:
    if isinstance(error, msgspec.ValidationError):
        return _foreign(path)
    if "truncated" in str(error):
        return UserError("the JSON is cut off", where=str(path), fix=f"copy it again, or {_AGAIN}")
    return UserError(f"not JSON: {error}", where=str(path), fix=_AGAIN)


def _foreign(path: Path) -> UserError:
    return UserError("JSON, but no trace of the PyTorch profiler", where=str(path), fix=_AGAIN)


def _part(raw: msgspec.Raw, type_: type[T]) -> T | None:
    """A part of the document; None where it is absent or not what it should be."""
    try:
        return msgspec.json.decode(raw, type=type_ | None)
    except msgspec.MsgspecError:
        return None


def _tool(document: Document) -> str:
    cupti = _part(document.cupti, int)
    rank = _part(document.distributed, Distributed)
    words = ["PyTorch profiler (Kineto)"]
    if cupti is not None:
        words.append(f"CUPTI {cupti}")
    if rank is not None and rank.rank is not None:
        words.append(f"rank {rank.rank}" + (f" of {rank.world_size}" if rank.world_size else ""))
    return ", ".join(words)


def _notes(counts: dict[str, int], unreadable: int) -> list[Note]:
    found: list[Note] = []
    left = [f"{counts[category]:,} {what} ({category})" for category, what in _LEFT_OUT.items() if counts.get(category)]
    if left:
        found.append(Note("left_out", Severity.INFO, f"not read: {', '.join(left)}", "no figure needs them"))
    if unreadable:
        found.append(
            Note(
                "unreadable_events",
                Severity.WARNING,
                f"{unreadable:,} events could not be read",
                "a field that they need is absent or not what it should be; they are in no figure",
                _AGAIN,
            )
        )
    return found
