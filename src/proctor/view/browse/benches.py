"""Stored benches of compilation, read within bounds, for a page and for a line of a list."""

from __future__ import annotations

import msgspec

from proctor.compile.model import Measured
from proctor.compile.store import BENCH, bench_of
from proctor.rows import UserError
from proctor.storage.folder import Folder
from proctor.view.browse.places import check_own

MOST_BYTES = 8 << 20
"""Largest ``compile.json`` that is shown."""
MOST_TIMINGS = 20_000
"""A bench is judged from its timings, which takes about a second for a thousand of them."""


class _Verdict(msgspec.Struct):
    sentence: str


class BenchBrief(msgspec.Struct):
    """What a list says of a bench: the verdict that was stored with it; the rest of the file is passed over."""

    verdict: _Verdict


def bench_content(folder: Folder) -> bytes:
    """The ``compile.json`` in a folder.

    Raises:
        UserError: there is none; it is too large to be shown, or behind a symbolic link.
        OSError: storage failed.
    """
    check_own(folder, [BENCH], MOST_BYTES)
    try:
        return folder.read(BENCH)
    except FileNotFoundError as error:
        raise UserError(f"no bench here (no {BENCH})", where=folder.location) from error


def measured_of(content: bytes, where: str) -> Measured:
    """What the content of a ``compile.json`` says was measured; `where` stands for the file in messages.

    Raises:
        UserError: it is damaged, or more than can be judged for a page.
    """
    measured = bench_of(content, where)
    if len(measured.timings) > MOST_TIMINGS:
        raise UserError(f"too many timings to be judged here: {len(measured.timings):,}", where=where)
    return measured


def bench_brief(folder: Folder) -> BenchBrief:
    """The verdict of the bench in a folder.

    Raises:
        UserError, OSError: as `bench_content`; it is damaged.
    """
    try:
        return msgspec.json.decode(bench_content(folder), type=BenchBrief)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UserError("not a bench that this version reads", where=f"{folder.location}/{BENCH}") from error
