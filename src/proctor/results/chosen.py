"""The rows that a run was told to keep to: a list of row ids, beside the fingerprint of their source."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import xxhash
from pyroaring import BitMap64

from proctor.rows import UserError
from proctor.storage.folder import Folder

NAME = "only.txt"
_MOST_DIGITS = 18


class RowList(NamedTuple):
    """Row ids as they were listed.

    Attributes:
        rows: the ids, each once.
        repeated: how many lines name an id that an earlier one has named.
    """

    rows: BitMap64
    repeated: int


class ChosenFacts(msgspec.Struct, frozen=True):
    """What ``source.json`` says of the list.

    Attributes:
        rows: how many ids it has.
        digest: XXH3-128 of the file, in hexadecimal.
    """

    rows: int
    digest: str


def parse_ids(lines: Iterable[bytes], where: str) -> RowList:
    """Row ids, a line each; blank lines are left out.

    Args:
        lines: as they are read from a file.
        where: what a mistake is told to lie in.

    Raises:
        UserError: a line is no row id, or there is none.
    """
    rows, listed = BitMap64(), 0
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text:
            continue
        if not text.isdigit() or len(text) > _MOST_DIGITS:
            shown = text[:40].decode("utf-8", "replace")
            fix = "one whole number a line, as the browser exports them"
            raise UserError(f"line {number:,} is no row id: {shown!r}", where=where, fix=fix)
        rows.add(int(text))
        listed += 1
    if not rows:
        raise UserError("it names no row", where=where)
    return RowList(rows, listed - len(rows))


def chosen_text(rows: BitMap64) -> bytes:
    """The content of the file: the ids in order, a line each."""
    return "".join(f"{row}\n" for row in rows).encode("ascii")


def facts_of(rows: BitMap64) -> ChosenFacts:
    """What is said of a list in ``source.json``."""
    return ChosenFacts(len(rows), xxhash.xxh3_128_hexdigest(chosen_text(rows)))


def read_chosen(folder: Folder, facts: ChosenFacts) -> BitMap64:
    """The ids that a run keeps to.

    Raises:
        UserError: the file is gone, or it is not what the run began with.
        OSError: storage failed.
    """
    where, fix = f"{folder.location}/{NAME}", "put the file back, or use --fresh"
    try:
        text = folder.read(NAME)
    except FileNotFoundError:
        raise UserError("the list of rows that this run keeps to is gone", where=where, fix=fix) from None
    rows = parse_ids(text.splitlines(), where).rows if xxhash.xxh3_128_hexdigest(text) == facts.digest else None
    if rows is None or len(rows) != facts.rows:
        raise UserError("not the list of rows that this run began with", where=where, fix=fix)
    return rows
