"""Reads some rows of a Parquet row group with bounded memory, and as many of them as damage leaves readable."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from proctor.rows import ErrorKind, Failure
from proctor.sources.files import open_failure
from proctor.sources.segments import rows_at

Rows = tuple[list[int], pa.Table]
"""Positions in the row group, and their rows."""


def read_rows(file: pq.ParquetFile, number: int, wanted: Sequence[int], batch_rows: int) -> Iterator[Rows | Failure]:
    """Yields the rows at the ascending positions `wanted`; then a failure if the rest of them cannot be had.

    A column's pages follow one another without a table of contents: what lies behind a damaged page is lost with it.
    """
    left = list(wanted)
    failure = yield from _read_batches(file, number, left, batch_rows)
    if failure is not None and failure.kind is ErrorKind.READ_CORRUPT and batch_rows > 1:
        # The damage lies somewhere in a batch: the rows in front of it are still there, one by one.
        failure = yield from _read_batches(file, number, left, 1)
    if failure is not None:
        yield failure


def _read_batches(
    file: pq.ParquetFile, number: int, left: list[int], batch_rows: int
) -> Generator[Rows, None, Failure | None]:
    """Reads on from the start of the row group until nothing is `left` (which shrinks) or reading fails."""
    batches = file.iter_batches(batch_size=batch_rows, row_groups=[number], use_threads=False)
    start = 0
    while left:
        try:
            batch = next(batches, None)
        except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
            return _failure(error)
        if batch is None:
            return Failure(ErrorKind.READ_CORRUPT, f"holds only {start:,} rows")
        end = start + batch.num_rows
        positions = left[: bisect_left(left, end)]
        if positions:
            yield positions, rows_at(batch, [position - start for position in positions])
            del left[: len(positions)]
        start = end
    return None


def _failure(error: Exception) -> Failure:
    if isinstance(error, OSError):
        return open_failure(error)
    kind = ErrorKind.READ_FAILED if isinstance(error, MemoryError) else ErrorKind.READ_CORRUPT
    return Failure(kind, " ".join(str(error).split())[:300] or type(error).__name__)
