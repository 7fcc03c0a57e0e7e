"""The history: tries that failed for a reason that was not the row's own, and answers whose marking failed."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from proctor.results.files import write_whole
from proctor.results.parts import keys_digest, split_by_checkpoint

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


def write_attempts(attempts: Path, records: pa.Table) -> None:
    """Keeps records in the history, one file for each checkpoint among them."""
    for checkpoint, part in split_by_checkpoint(records.select(FIELDS)):
        sweep = part["sweep"][0].as_py()
        ids = part["row_id"].to_numpy()
        path = attempts / f"try-{checkpoint}-{sweep:03d}-{ids[0]:010d}-{ids[-1]:010d}-{keys_digest(ids)}.parquet"
        write_whole(path, lambda draft, part=part: pq.write_table(part, draft, compression="zstd"))  # type: ignore[misc]


class LastError(NamedTuple):
    """How a row's last try ended."""

    kind: str
    message: str
    sample_id: str | None = None


def last_errors(attempts: Path, checkpoint: str) -> dict[int, LastError]:
    """For each row of `checkpoint` that was ever tried in vain, by row id."""
    errors: dict[int, LastError] = {}
    for path in sorted(attempts.glob(f"try-{checkpoint}-*.parquet")):
        try:
            table = pq.read_table(path, columns=["row_id", "checkpoint", "error_kind", "error_message", "sample_id"])
        except (OSError, pa.ArrowInvalid):
            continue  # history only: a damaged file costs its lines
        for row in table.to_pylist():
            if row["checkpoint"] == checkpoint:
                errors[row["row_id"]] = LastError(row["error_kind"], row["error_message"], row["sample_id"])
    return errors
