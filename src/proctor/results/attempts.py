"""The history: tries that failed for a reason that was not the row's own, and answers whose marking failed."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from proctor.results.parts import keys_digest, parquet_bytes, read_each, split_by_checkpoint
from proctor.storage.folder import Place, open_folder

FIELDS = (
    "row_id",
    "checkpoint",
    "sample_id",
    "sweep",
    "answer",
    "error_kind",
    "error_message",
    "engine",
    "attempts",
    "finished_at",
)


def write_attempts(attempts: Place, records: pa.Table) -> None:
    """Keeps records in the history, one file for each checkpoint among them."""
    folder = open_folder(attempts)
    for checkpoint, part in split_by_checkpoint(records.select(FIELDS)):
        sweep = part["sweep"][0].as_py()
        ids = part["row_id"].to_numpy()
        name = f"try-{checkpoint}-{sweep:03d}-{ids[0]:010d}-{ids[-1]:010d}-{keys_digest(ids)}.parquet"
        folder.write(name, parquet_bytes(part))


class LastError(NamedTuple):
    """How a row's last try ended."""

    kind: str
    message: str
    sample_id: str | None = None


def last_errors(attempts: Place, checkpoint: str) -> dict[int, LastError]:
    """For each row of `checkpoint` that was ever tried in vain, by row id."""
    folder, errors = open_folder(attempts), dict[int, LastError]()
    names = [n for n in folder.names() if n.startswith(f"try-{checkpoint}-") and n.endswith(".parquet")]
    for _, table in read_each(folder, names, _read_errors):
        if isinstance(table, Exception):
            continue  # history only: a damaged file costs its lines
        for row in table.to_pylist():
            if row["checkpoint"] == checkpoint:
                errors[row["row_id"]] = LastError(row["error_kind"], row["error_message"], row["sample_id"])
    return errors


def _read_errors(source: Any) -> pa.Table:
    return pq.read_table(source, columns=["row_id", "checkpoint", "error_kind", "error_message", "sample_id"])
