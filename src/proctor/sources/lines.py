"""Finds lines of a text file without keeping them: one pass counts them, sparse marks lead to any of them later.

A blank line (white space only) is not a row. Lines end with ``\\n``; rows and lines are counted from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MARK_ROWS = 1024
MARK_BYTES = 4 << 20
_BUFFER = 1 << 20


class Line(NamedTuple):
    """One row's line: number of the row, number of the line, and its bytes."""

    row: int
    number: int
    data: bytes


@dataclass(frozen=True, slots=True, eq=False)
class LineIndex:
    """Where the rows of a file lie.

    Attributes:
        path: the file.
        rows: how many there are.
        size_bytes: bytes of the whole file.
        marks: int64 [n, 3]; a row, its line and its offset, at least every `MARK_ROWS` rows or `MARK_BYTES` bytes.
    """

    path: Path
    rows: int
    size_bytes: int
    marks: NDArray[np.int64]


def index_lines(path: Path, digest: Callable[[bytes], object]) -> LineIndex:
    """Counts the rows of a file in one pass, and hands every byte to `digest` on the way.

    Memory: the longest line, and 24 bytes a mark.
    """
    marks: list[tuple[int, int, int]] = []
    rows = offset = 0
    next_row = next_offset = 0
    with path.open("rb", buffering=_BUFFER) as file:
        for number, line in enumerate(file):
            digest(line)
            if not line.isspace():
                if rows >= next_row or offset >= next_offset:
                    marks.append((rows, number, offset))
                    next_row, next_offset = rows + MARK_ROWS, offset + MARK_BYTES
                rows += 1
            offset += len(line)
    return LineIndex(path, rows, offset, np.array(marks, np.int64).reshape(-1, 3))


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
    with index.path.open("rb", buffering=_BUFFER) as file:
        file.seek(offset)
        for number, data in enumerate(file, start=first_number):
            if not data.isspace():
                yield Line(row, number, data)
                row += 1
                if row > last:
                    return
