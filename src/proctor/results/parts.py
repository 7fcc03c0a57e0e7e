"""Part files: a part appears whole or not at all, and its name follows from its keys.

Writing the same rows again therefore overwrites instead of duplicating.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from proctor.storage.folder import Folder, Place, StorageError, open_folder

_Read = TypeVar("_Read")

TOMBSTONE_SUFFIX = ".tombstone.parquet"
"""Parts with tombstones: they say that a row was left unanswered, and give way when the run is resumed."""


def write_records(results: Place, records: pa.Table) -> list[str]:
    """Writes final records (schema `proctor.rows.records`), one part for each checkpoint among them; gives the names.

    Raises:
        OSError: a part could not be written, and is not there then.
    """
    return [
        _write(open_folder(results), checkpoint, part, ".parquet")
        for checkpoint, part in split_by_checkpoint(records)
        if part.num_rows
    ]


def write_tombstone_part(results: Place, checkpoint: str, records: pa.Table) -> str:
    """Writes records of rows that stay unanswered."""
    return _write(open_folder(results), checkpoint, records, TOMBSTONE_SUFFIX)


def parts_of(results: Place, checkpoint: str | None = None, *, tombstones: bool = True) -> list[str]:
    """Names of part files in order, of one checkpoint or of all."""
    names = [n for n in open_folder(results).names() if n.startswith("part-") and n.endswith(".parquet")]
    if not tombstones:
        names = [name for name in names if not is_tombstone(name)]
    return names if checkpoint is None else [name for name in names if checkpoint_of(name) == checkpoint]


def is_tombstone(part: str) -> bool:
    """Whether a part holds tombstones, by its name."""
    return part.endswith(TOMBSTONE_SUFFIX)


def checkpoint_of(part: str) -> str:
    """The checkpoint whose records a part holds, by its name."""
    return part.removeprefix("part-").rsplit("-", 3)[0]


def read_each(
    folder: Folder, names: Sequence[str], read: Callable[[Any], _Read]
) -> Iterator[tuple[str, _Read | Exception]]:
    """What `read` makes of each file, several at a time where that helps; the error in place of a damaged or missing
    one.

    Raises:
        OSError: storage failed, which says nothing about the file.
    """

    def attempt(name: str) -> _Read | Exception:
        try:
            return read(folder.open(name))
        except (OSError, pa.ArrowInvalid) as error:
            if not (is_damage(error) or isinstance(error, FileNotFoundError)):
                raise
            return error

    if folder.concurrency == 1:
        yield from ((name, attempt(name)) for name in names)
        return
    with ThreadPoolExecutor(folder.concurrency) as pool:
        yield from zip(names, pool.map(attempt, names), strict=True)


def is_damage(error: Exception) -> bool:
    """Whether an error says that a file is not whole; pyarrow's own `OSError` for that has no number."""
    return isinstance(error, pa.ArrowInvalid) or (
        isinstance(error, OSError) and error.errno is None and not isinstance(error, StorageError)
    )


def read_ids(source: Any) -> np.ndarray:
    """Row ids of a part, in order."""
    return pq.read_table(source, columns=["row_id"]).column("row_id").to_numpy()


def keys_of(checkpoint: str) -> Callable[[Any], np.ndarray]:
    """A reader as `read_ids` that takes a part for damaged if a record in it is of another checkpoint, or `unsound`."""

    def read(source: Any) -> np.ndarray:
        keys = pq.read_table(source, columns=["row_id", "checkpoint", "answer", "error_kind"])
        if keys["row_id"].type != pa.int64() or pc.unique(keys["checkpoint"]).to_pylist() not in ([checkpoint], []):
            raise pa.ArrowInvalid(f"no records of {checkpoint}")
        if pc.any(unsound(keys)).as_py():
            raise pa.ArrowInvalid("a record with neither an answer nor an error, or with both")
        return keys["row_id"].to_numpy()

    return read


def unsound(records: pa.Table) -> pa.ChunkedArray:
    """Which records have neither an answer nor an error, or both: Proctor writes none, so somebody else has."""
    return pc.equal(pc.is_null(records["answer"]), pc.is_null(records["error_kind"]))


def parquet_bytes(table: pa.Table) -> bytes:
    """`table` as a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def split_by_checkpoint(records: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Records of each checkpoint, in order of row id."""
    for name in pc.unique(records["checkpoint"]).to_pylist():
        part = records.filter(pc.equal(records["checkpoint"], name))
        yield name, part.sort_by("row_id")


def keys_digest(row_ids: np.ndarray) -> str:
    """16 hex digits that follow from the (sorted) row ids."""
    return xxhash.xxh3_64_hexdigest(np.ascontiguousarray(row_ids, dtype="<i8").tobytes())


def _write(results: Folder, checkpoint: str, records: pa.Table, suffix: str) -> str:
    ids = records["row_id"].to_numpy()
    name = f"part-{checkpoint}-{ids[0]:010d}-{ids[-1]:010d}-{keys_digest(ids)}{suffix}"
    results.write(name, parquet_bytes(records))
    return name
