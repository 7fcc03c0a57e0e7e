"""The head of a shard file: how many rows it holds and where each lies, as far as that can be believed.

    u32 n | u32 offsets[n + 1] | configuration (JSON, unused) | rows

Nothing in the file says whether its bytes are whole, so everything is checked before it is used: the number of rows
against the index, offsets against each other and against the length of the file. Damage is held against the rows it
hits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proctor.rows import ErrorKind
from proctor.sources.mds.cells import MAX_WINDOW, Bytes, Faults, Ints, read_numbers


class ShardError(Exception):
    """A fault that hits every row of a shard: the kind and the message of their errors."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message

    def __reduce__(self) -> tuple[object, ...]:
        return (ShardError, (self.kind, self.message))


@dataclass(frozen=True, slots=True)
class RowTable:
    """Where the rows of a shard lie.

    Attributes:
        offsets: start of each row and end of the last, of at most the rows that the index knows.
        sound: which rows have a place that can be believed; None: all.
        notice: what is wrong with the shard beyond the rows that the index knows.
    """

    offsets: NDArray[np.uint32]
    sound: NDArray[np.bool_] | None
    notice: str | None

    def ranges(self, rows: Ints) -> tuple[Ints, Ints, Faults]:
        """Start and end of each of `rows` (positions in the shard), and a fault for each that has none (range 0, 0)."""
        held = len(self.offsets) - 1
        present = rows < held
        inside = np.where(present, rows, 0)
        usable = present if self.sound is None or held == 0 else present & self.sound[inside]
        starts = np.where(usable, self.offsets[inside], 0).astype(np.int64)
        ends = np.where(usable, self.offsets[np.minimum(inside + 1, held)], 0).astype(np.int64)
        faults: Faults = {}
        for position in np.flatnonzero(~usable):
            lost = "the shard's offset table gives it no sound place (file cut off or damaged)"
            faults[int(position)] = lost if present[position] else f"the shard holds only {held} rows"
        for position in np.flatnonzero(ends - starts > MAX_WINDOW):
            faults[int(position)] = f"has {ends[position] - starts[position]:,} bytes; rows above 2 GiB are not read"
            starts[position] = ends[position] = 0
        return starts, ends, faults


def head_bytes(samples: int) -> int:
    """Where the rows of a shard begin at the earliest: behind its row count and its offsets."""
    return 4 + 4 * (samples + 1)


def sound_row_table(head: Bytes, size: int, samples: int) -> RowTable | None:
    """The row table of a shard file of `size` bytes that begins with `head`, if there is nothing odd about it: as many
    rows as there should be, one behind the other, the last of which ends where the file does."""
    if len(head) < head_bytes(samples) or int(np.frombuffer(head, "<u4", 1)[0]) != samples:
        return None
    offsets = np.frombuffer(head, "<u4", samples + 1, offset=4)
    sound = offsets[0] >= head_bytes(samples) and offsets[-1] == size and bool(np.all(offsets[1:] >= offsets[:-1]))
    return RowTable(offsets, None, None) if sound else None


def read_row_table(data: Bytes, samples: int, sizes: Sequence[int | None]) -> RowTable:
    """Reads and checks the head of a shard that should hold `samples` rows of cells with these sizes.

    Raises:
        ShardError: the file ends before its rows begin.
    """
    table = sound_row_table(data, len(data), samples)
    return _odd_row_table(data, samples, sizes) if table is None else table


def _odd_row_table(data: Bytes, samples: int, sizes: Sequence[int | None]) -> RowTable:
    if len(data) < 8:
        raise ShardError(ErrorKind.READ_CORRUPT, f"the shard file has only {len(data)} bytes")
    count, notice = _row_count(data, samples)
    if head_bytes(count) > len(data):
        raise ShardError(ErrorKind.READ_CORRUPT, f"the shard file ends inside its offset table of {count:,} rows")
    offsets = np.frombuffer(data, "<u4", min(count, samples) + 1, offset=4)
    if offsets[0] >= head_bytes(count) and offsets[-1] <= len(data) and bool(np.all(offsets[1:] >= offsets[:-1])):
        behind = len(data) - int(offsets[-1])
        if notice is None and behind:
            notice = f"{behind:,} bytes behind the shard's last row belong to no row"
        return RowTable(offsets, None, notice)
    return RowTable(offsets, _sound_rows(data, offsets.astype(np.int64), head_bytes(count), sizes), notice)


def read_cell_sizes(data: Bytes, starts: Ints, ends: Ints, sizes: Sequence[int | None]) -> tuple[Ints, Ints]:
    """The size words of rows, and how many bytes each row's cells take with them.

    Returns:
        One column of `int64` words for each None in `sizes`, and the bytes taken; a row too short for its words has
        zeros, so that what it takes differs from what it has.
    """
    count = sum(size is None for size in sizes)
    long_enough = ends - starts >= 4 * count
    words = np.zeros((len(starts), count), np.int64)
    for number in range(count):
        words[long_enough, number] = read_numbers(data, starts[long_enough] + 4 * number, "<u4")
    return words, words.sum(axis=1) + 4 * count + sum(size or 0 for size in sizes)


def _row_count(data: Bytes, samples: int) -> tuple[int, str | None]:
    """The number of rows in the file, and what is odd about it."""
    count = int(np.frombuffer(data, "<u4", 1)[0])
    if count == samples:
        return count, None
    if not _table_fits(data, count) and _table_fits(data, samples):
        return samples, f"the shard's head says {count:,} rows, its offsets are those of the index's {samples:,}"
    if count > samples:
        return count, f"the shard holds {count:,} rows, its index says {samples:,}: the others are not read"
    return count, None  # rows that are not there have an error each


def _table_fits(data: Bytes, count: int) -> bool:
    """Whether an offset table of `count` rows ends where the file does."""
    end = head_bytes(count)
    return end <= len(data) and int(np.frombuffer(data, "<u4", 1, offset=end - 4)[0]) == len(data)


def _sound_rows(data: Bytes, offsets: Ints, first: int, sizes: Sequence[int | None]) -> NDArray[np.bool_]:
    """Which rows of a damaged offset table can be believed: sizes that fill the row, and no row inside another."""
    starts, ends = offsets[:-1], offsets[1:]
    sound = (starts >= first) & (ends <= len(data)) & (ends > starts)
    inside = np.flatnonzero(sound)
    _, taken = read_cell_sizes(data, starts[inside], ends[inside], sizes)
    inside = inside[taken == ends[inside] - starts[inside]]
    sound[:] = False
    sound[inside[_longest_chain(starts[inside], ends[inside])]] = True
    return sound


def _longest_chain(starts: Ints, ends: Ints) -> Ints:
    """Positions of the most ranges that follow one another without overlap: those that agree with the most others."""
    if bool(np.all(starts[1:] >= ends[:-1])):
        return np.arange(len(starts))
    chain_ends: list[int] = []  # smallest end of a chain of each length, and which range it is
    chain_tips: list[int] = []
    before = np.full(len(starts), -1, np.int64)
    for position, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        length = bisect_right(chain_ends, start)
        before[position] = chain_tips[length - 1] if length else -1
        if length == len(chain_ends) or end < chain_ends[length]:
            chain_ends[length : length + 1] = [end]
            chain_tips[length : length + 1] = [position]
    chain = []
    position = chain_tips[-1]
    while position >= 0:
        chain.append(position)
        position = int(before[position])
    return np.array(chain[::-1], np.int64)
