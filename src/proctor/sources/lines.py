"""Finds lines of a text file without keeping them: one pass counts them, sparse marks lead to any of them later.

A blank line (white space only) is not a row. Lines end with ``\\n``; rows and lines are counted from 0. Where the data
of a compressed file is damaged its lines end: the damage is one more row, which is never read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proctor.sources.faults import FileError
from proctor.sources.files import DataFile, Version
from proctor.sources.streams import reading

MARK_ROWS = 64
MARK_BYTES = 4 << 20
"""Both are well below what a block holds, so that blocks begin at marks, where the stream of the one before stopped."""


class Line(NamedTuple):
    """One row's line: number of the row, number of the line, and its bytes."""

    row: int
    number: int
    data: bytes


@dataclass(frozen=True, slots=True, eq=False)
class LineIndex:
    """Where the rows of a file lie.

    Attributes:
        file, version: the file, and what it was when it was counted.
        rows: how many there are.
        size_bytes: bytes of the whole file, unpacked.
        damage: why nothing behind the last row could be read; None: the file was read to its end.
        marks: int64 [n, 3]; a row, its line and its offset, at least every `MARK_ROWS` rows or `MARK_BYTES` bytes.
    """

    file: DataFile
    version: Version
    rows: int
    size_bytes: int
    damage: str | None
    marks: NDArray[np.int64]


def index_lines(file: DataFile, digest: Callable[[bytes], object]) -> LineIndex:
    """Counts the rows of a file in one pass, and hands every byte to `digest` on the way.

    Memory: the longest line, and 24 bytes a mark.

    Raises:
        OSError: the file cannot be read for now.
    """
    marks: list[tuple[int, int, int]] = []
    rows = number = offset = 0
    next_row = next_offset = 0
    damage = None
    version = file.version()
    try:
        with reading(file, version) as stream:
            for line in stream:
                digest(line)
                if not line.isspace():
                    if rows >= next_row or offset >= next_offset:
                        marks.append((rows, number, offset))
                        next_row, next_offset = rows + MARK_ROWS, offset + MARK_BYTES
                    rows += 1
                number += 1
                offset += len(line)
    except OSError as error:
        if isinstance(error, FileError) or error.errno is not None:
            raise
        damage = f"{file.name} is damaged behind line {number}, and what follows cannot be counted: {error}"
        marks.append((rows, number, offset))
        rows += 1
    return LineIndex(file, version, rows, offset, damage, np.array(marks, np.int64).reshape(-1, 3))


def read_lines(index: LineIndex, wanted: Sequence[int]) -> Iterator[Line]:
    """Yields the lines of some rows (ascending); fewer if the file has become shorter.

    Raises:
        OSError: the file cannot be read.
    """
    if not wanted:
        return
    left = iter(wanted)
    row = next(left)
    for line in _lines_from(index, row, wanted[-1]):
        if line.row == row:
            yield line
            row = next(left, -1)


def _lines_from(index: LineIndex, first: int, last: int) -> Iterator[Line]:
    """The lines of the rows from the mark before `first` up to `last`."""
    mark = int(np.searchsorted(index.marks[:, 0], first, side="right")) - 1
    row, first_number, offset = (int(value) for value in index.marks[mark])
    with reading(index.file, index.version, offset) as stream:
        for number, data in enumerate(stream, start=first_number):
            if not data.isspace():
                yield Line(row, number, data)
                row += 1
                if row > last:
                    return
