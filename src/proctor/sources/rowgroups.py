"""Reads some rows of a Parquet row group with bounded memory, and as many of them as damage leaves readable."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from proctor.rows import ErrorKind, Failure
from proctor.sources.faults import open_failure
from proctor.sources.segments import rows_at

Rows = tuple[list[int], pa.Table]
"""Positions in the row group, and their rows."""


class RowGroupReader:
    """An open Parquet file, and how far its last row group was read: a later row of that is read on to from there.

    Args:
        file: the file.
    """

    def __init__(self, file: pq.ParquetFile) -> None:
        self.file = file
        self._number = -1
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._batch: pa.RecordBatch | None = None  # the batch that was read last
        self._start = 0  # the position of its first row

    def close(self) -> None:
        """Closes the file."""
        self._batches, self._batch = iter(()), None
        self.file.close(force=True)

    def read(self, number: int, wanted: Sequence[int], batch_rows: int) -> Iterator[Rows | Failure]:
        """Yields the rows at the ascending positions `wanted`; then a failure if the rest of them cannot be had.

        A column's pages follow one another without a table of contents: what lies behind a damaged page is lost with
        it.
        """
        left = list(wanted)
        if number != self._number or left[0] < self._start:
            self._begin(number, batch_rows)
        failure = yield from self._read_on(left)
        if failure is not None and failure.kind is ErrorKind.READ_CORRUPT and batch_rows > 1:
            # The damage lies somewhere in a batch: the rows in front of it are still there, one by one.
            self._begin(number, 1)
            failure = yield from self._read_on(left)
        if failure is not None:
            self._number = -1
            yield failure

    def _begin(self, number: int, batch_rows: int) -> None:
        self._number, self._batch, self._start = number, None, 0
        self._batches = self.file.iter_batches(batch_size=batch_rows, row_groups=[number], use_threads=False)

    def _read_on(self, left: list[int]) -> Generator[Rows, None, Failure | None]:
        """Reads until nothing is `left` (which shrinks) or reading fails."""
        while left:
            end = self._start + (self._batch.num_rows if self._batch is not None else 0)
            positions = left[: bisect_left(left, end)]
            if positions:
                assert self._batch is not None
                del left[: len(positions)]
                yield positions, rows_at(self._batch, [position - self._start for position in positions])
                continue
            self._start, self._batch = end, None
            try:
                self._batch = next(self._batches, None)
            except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
                return _failure(error)
            if self._batch is None:
                return Failure(ErrorKind.READ_CORRUPT, f"holds only {end:,} rows")
        return None


def _failure(error: Exception) -> Failure:
    if isinstance(error, OSError):
        return open_failure(error)
    kind = ErrorKind.READ_FAILED if isinstance(error, MemoryError) else ErrorKind.READ_CORRUPT
    return Failure(kind, " ".join(str(error).split())[:300] or type(error).__name__)
