"""Part files: a part appears whole or not at all, and its name follows from its keys.

Writing the same rows again therefore overwrites instead of duplicating.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash
from pyroaring import BitMap64

from proctor.results.files import write_whole

TOMBSTONE_SUFFIX = ".tombstone.parquet"
"""Parts with tombstones: they say that a row was left unanswered, and give way when the run is resumed."""


def write_records(results: Path, records: pa.Table) -> list[Path]:
    """Writes final records (schema `proctor.rows.records`), one part for each checkpoint among them."""
    return [
        _write(results, checkpoint, part, ".parquet")
        for checkpoint, part in split_by_checkpoint(records)
        if part.num_rows
    ]


def write_tombstone_part(results: Path, checkpoint: str, records: pa.Table) -> Path:
    """Writes records of rows that stay unanswered."""
    return _write(results, checkpoint, records, TOMBSTONE_SUFFIX)


def parts_of(results: Path, checkpoint: str | None = None, *, tombstones: bool = True) -> list[Path]:
    """Part files in name order, of one checkpoint or of all."""
    paths = sorted(p for p in results.glob("part-*.parquet") if p.is_file())
    if not tombstones:
        paths = [p for p in paths if not is_tombstone(p)]
    return paths if checkpoint is None else [p for p in paths if checkpoint_of(p) == checkpoint]


def is_tombstone(part: Path) -> bool:
    """Whether a part holds tombstones, by its name."""
    return part.name.endswith(TOMBSTONE_SUFFIX)


def checkpoint_of(part: Path) -> str:
    """The checkpoint whose records a part holds, by its name."""
    return part.name.removeprefix("part-").rsplit("-", 3)[0]


def ids_of(part: Path) -> BitMap64:
    """Row ids of a part file.

    Raises:
        OSError, pyarrow.ArrowInvalid: the file is not whole.
    """
    column = pq.read_table(part, columns=["row_id"]).column("row_id")
    return BitMap64(column.to_numpy())


def split_by_checkpoint(records: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Records of each checkpoint, in order of row id."""
    for name in pc.unique(records["checkpoint"]).to_pylist():
        part = records.filter(pc.equal(records["checkpoint"], name))
        yield name, part.sort_by("row_id")


def keys_digest(row_ids: np.ndarray) -> str:
    """16 hex digits that follow from the (sorted) row ids."""
    return xxhash.xxh3_64_hexdigest(np.ascontiguousarray(row_ids, dtype="<i8").tobytes())


def _write(results: Path, checkpoint: str, records: pa.Table, suffix: str) -> Path:
    ids = records["row_id"].to_numpy()
    path = results / f"part-{checkpoint}-{ids[0]:010d}-{ids[-1]:010d}-{keys_digest(ids)}{suffix}"
    write_whole(path, lambda draft: pq.write_table(records, draft, compression="zstd"))
    return path
