"""Which rows a run keeps to: those of the list that it is given, or of the one that it began with."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from pyroaring import BitMap64

from proctor.results import RunDir
from proctor.results.chosen import RowList, parse_ids
from proctor.rows import UserError

_LONGEST_LINE = 4096


def read_list(place: str) -> RowList:
    """The row ids in a file, a line each; ``-`` is standard input.

    Raises:
        UserError: it cannot be read, or is no list of row ids.
    """
    if place == "-":
        if sys.stdin is None:  # closed by whoever started this
            raise UserError("cannot be read: it is closed", where="standard input")
        return parse_ids(_lines(sys.stdin.buffer), "standard input")
    if not place:  # an unset variable of a shell; it would be the current directory
        raise UserError("it names no file", where="--only")
    try:
        with Path(place).open("rb") as file:
            return parse_ids(_lines(file), place)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", where=place) from error


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines, one that is too long in pieces: what is no list may have no end of a line at all."""
    yield file.readline(_LONGEST_LINE).removeprefix(codecs.BOM_UTF8)
    yield from iter(lambda: file.readline(_LONGEST_LINE), b"")


def row_list(ids: Iterable[int]) -> BitMap64:
    """Row ids as a set.

    Raises:
        UserError: one is no row id, or there is none.
    """
    try:
        rows = BitMap64(ids)
    except (TypeError, OverflowError, ValueError) as error:
        raise UserError(f"not row ids: {error}", where="only") from error
    if not rows:
        raise UserError("it names no row", where="only")
    return rows


def rows_to_keep_to(run: RunDir, given: BitMap64 | None, *, fresh: bool) -> BitMap64 | None:
    """The list of a run that is about to begin or to go on; None for all rows of the source.

    Whether a list that is given suits a run that is there already is for `check_same_rows`.

    Raises:
        UserError: the run's own list is damaged.
    """
    if given is not None or fresh or not run.folder.exists("spec.yaml"):
        return given
    return run.chosen()


def check_same_rows(run: RunDir, now: BitMap64 | None) -> None:
    """Whether a run that is there keeps to these rows.

    Raises:
        UserError: it keeps to others.
    """
    before = run.chosen()
    if before == now:
        return
    if before is None or now is None:
        what = "all rows of the source" if before is None else f"a list of {len(before):,} rows"
    else:
        lost, new = len(before - now), len(now - before)
        what = f"another list of rows: {lost:,} of its {len(before):,} are not on this one, {new:,} are new"
    fix = "leave --only out to go on with them, use --fresh to start anew, or another run_dir"
    raise UserError(f"the run here is of {what}", where=run.location, fix=fix)
