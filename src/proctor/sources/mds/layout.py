"""The head of a shard file: how many rows it holds and where each lies, as far as that can be believed.

    u32 n | u32 offsets[n + 1] | configuration (JSON, unused) | rows

Nothing in the file says whether its bytes are whole, so everything is checked before it is used: the number of rows
against the index, offsets against each other and against the length of the file. Damage is held against the rows it
hits.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proctor.rows import ErrorKind
from proctor.sources.mds.cells import MAX_WINDOW, Bytes, Faults, Ints


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
        sound: which offsets can be believed; None: all.
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
        usable = present.copy()
        if self.sound is not None:
            usable &= self.sound[inside] & self.sound[np.minimum(inside + 1, held)]
        starts = np.where(usable, self.offsets[inside], 0).astype(np.int64)
        ends = np.where(usable, self.offsets[np.minimum(inside + 1, held)], 0).astype(np.int64)
        faults: Faults = {}
        for position in np.flatnonzero(~usable):
            lost = "the shard's offset table gives it no sound place (file cut off or damaged)"
            faults[int(position)] = lost if present[position] else f"the shard holds only {held} rows"
        for position in np.flatnonzero(ends - starts > MAX_WINDOW):
            faults[int(position)] = f"has {ends[position] - starts[position]:,} bytes; rows above 2 GiB are not read"
        return starts, ends, faults


def read_row_table(data: Bytes, samples: int) -> RowTable:
    """Reads and checks the head of a shard that should hold `samples` rows.

    Raises:
        ShardError: the file ends before its rows begin.
    """
    if len(data) < 8:
        raise ShardError(ErrorKind.READ_CORRUPT, f"the shard file has only {len(data)} bytes")
    count, notice = _row_count(data, samples)
    if _table_end(count) > len(data):
        raise ShardError(ErrorKind.READ_CORRUPT, f"the shard file ends inside its offset table of {count:,} rows")
    offsets = np.frombuffer(data, "<u4", min(count, samples) + 1, offset=4)
    sound = _sound_offsets(offsets, _table_end(count), len(data))
    if notice is None and sound is None and int(offsets[-1]) < len(data):
        notice = f"{len(data) - int(offsets[-1]):,} bytes behind the shard's last row belong to no row"
    return RowTable(offsets, sound, notice)


def _row_count(data: Bytes, samples: int) -> tuple[int, str | None]:
    """The number of rows in the file, and what is odd about it."""
    count = int(np.frombuffer(data, "<u4", 1)[0])
    if count == samples:
        return count, None
    if not _table_fits(data, count) and _table_fits(data, samples):
        return samples, f"the shard's head says {count:,} rows, its offsets are those of the index's {samples:,}"
    if count > samples:
        return count, f"the shard holds {count:,} rows, its index says {samples:,}: the others are not read"
    return count, f"the shard holds {count:,} rows, its index says {samples:,}"


def _table_end(count: int) -> int:
    return 4 + 4 * (count + 1)


def _table_fits(data: Bytes, count: int) -> bool:
    """Whether an offset table of `count` rows ends where the file does."""
    end = _table_end(count)
    return end <= len(data) and int(np.frombuffer(data, "<u4", 1, offset=end - 4)[0]) == len(data)


def _sound_offsets(offsets: NDArray[np.uint32], first: int, last: int) -> NDArray[np.bool_] | None:
    if offsets[0] >= first and offsets[-1] <= last and bool(np.all(offsets[1:] >= offsets[:-1])):
        return None
    sound = np.zeros(len(offsets), bool)
    inside = np.flatnonzero((offsets >= first) & (offsets <= last))
    sound[inside[_longest_ascent(offsets[inside])]] = True
    return sound


def _longest_ascent(values: NDArray[np.uint32]) -> Ints:
    """Positions of a longest non-decreasing subsequence: the offsets that agree with the most others."""
    tops: list[int] = []  # smallest last value of an ascent of each length
    top_positions: list[int] = []
    before = np.full(len(values), -1, np.int64)
    for position, value in enumerate(values.tolist()):
        length = bisect_right(tops, value)
        before[position] = top_positions[length - 1] if length else -1
        tops[length : length + 1] = [value]
        top_positions[length : length + 1] = [position]
    ascent: list[int] = []
    position = top_positions[-1] if top_positions else -1
    while position >= 0:
        ascent.append(position)
        position = int(before[position])
    return np.array(ascent[::-1], np.int64)
