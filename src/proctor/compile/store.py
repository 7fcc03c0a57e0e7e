"""A bench on disk: one JSON file with everything that was measured and what followed from it, and a page beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from proctor.compile.model import Measured, Verdict
from proctor.rows import UserError

BENCH = "compile.json"
FORMAT = "proctor compile bench"
VERSION = 1
MOST_LOOKS = 1_000
_FIX = "make one with `proctor compile bench SPEC`"


class _Envelope(msgspec.Struct):
    """What is read before anything else: whose file it is, and in which version."""

    format: str
    version: int
    measured: msgspec.Raw


def write_bench(path: Path, measured: Measured, verdict: Verdict) -> None:
    """Writes a bench to the file `path`, whole or not at all; folders above it are made.

    The file is an object with ``format``, ``version``, ``measured`` and ``verdict``. The verdict is for readers without
    Proctor: `read_bench` leaves it aside, because it follows from what was measured.

    Raises:
        UserError: it cannot be written there.
    """
    content = {"format": FORMAT, "version": VERSION, "measured": measured, "verdict": verdict}
    write_whole(path, msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all; folders above it are made.

    Raises:
        UserError: it cannot be written there.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", where=str(path)) from error


def read_bench(place: Path) -> Measured:
    """What a stored bench has measured; `place` is its file, or a folder with a ``compile.json``.

    Raises:
        UserError: there is none, it is damaged, or another version of Proctor wrote it.
    """
    path = _file(place)
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise UserError("no bench here", where=str(path), fix=_FIX) from error
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    return bench_of(content, str(path))


def bench_of(content: bytes, where: str) -> Measured:
    """What the content of a ``compile.json`` says was measured; `where` stands for the file in messages.

    Raises:
        UserError: it is damaged, or another version of Proctor wrote it.
    """
    envelope = _decoded(content, _Envelope, where, "not a bench, or damaged")
    if envelope.format != FORMAT:
        raise UserError(f"not a bench: its format is {envelope.format!r}", where=where, fix=_FIX)
    if envelope.version != VERSION:
        what = f"a bench of format version {envelope.version}; this Proctor reads version {VERSION}"
        raise UserError(what, where=where, fix=_FIX)
    measured: Measured = _decoded(bytes(envelope.measured), Measured, where, "a damaged bench")
    trouble = _trouble(measured)
    if trouble:
        raise UserError(f"a damaged bench: {trouble}", where=where, fix=_FIX)
    return measured


def page_of(place: Path) -> Path:
    """Where the page of the bench at `place` goes: beside it, under its name."""
    return _file(place).with_suffix(".html")


def _file(place: Path) -> Path:
    return place / BENCH if place.is_dir() else place


def _decoded(content: bytes, type_: Any, where: str, what: str) -> Any:
    try:
        return msgspec.json.decode(content, type=type_)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UserError(f"{what}: {error}", where=where, fix=_FIX) from error


def _trouble(measured: Measured) -> str:
    """What cannot have been measured, in a file that is otherwise well-formed."""
    shapes = {shape.name for shape in measured.shapes}
    for shape in measured.shapes:
        if shape.share < 0 or shape.rows < 1:
            return f"the shape {shape.name!r} has a share of {shape.share} and {shape.rows} rows"
    for timing in measured.timings:
        if timing.seconds <= 0 or timing.calls < 1:
            return f"{timing.calls} calls of {timing.target!r} that took {timing.seconds} s"
        if timing.shape not in shapes:
            return f"{timing.target!r} was timed at the shape {timing.shape!r}, which is not among the shapes"
    if not 1 <= measured.looks <= MOST_LOOKS:
        return f"{measured.looks} looks at the figures"
    if measured.rows is not None and measured.rows < 0:
        return f"a run of {measured.rows} rows"
    return ""
