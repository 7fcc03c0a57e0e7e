"""Tombstones: records for rows that are still unanswered when a run ends, so that none is missing in silence."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pyarrow as pa
from pyroaring import BitMap64

from proctor.results.attempts import LastError, last_errors
from proctor.results.parts import write_tombstone_part
from proctor.rows import ErrorKind

_ROWS_A_PART = 100_000


def write_tombstones(run_root: Path, checkpoint: str, missing: BitMap64, schema: pa.Schema, sweep: int) -> None:
    """Writes one record for each id in `missing`: its last error if it was ever tried, else ``lost``."""
    errors = last_errors(run_root / "attempts", checkpoint)
    now = datetime.now(UTC)
    unseen = LastError(ErrorKind.LOST.value, "no worker returned this row")
    remaining = iter(missing)
    while ids := list(islice(remaining, _ROWS_A_PART)):
        rows = []
        for row_id in ids:
            last = errors.get(row_id, unseen)
            rows.append(
                {
                    "row_id": row_id,
                    "checkpoint": checkpoint,
                    "sample_id": last.sample_id,
                    "error_kind": last.kind,
                    "error_message": last.message,
                    "sweep": sweep,
                    "finished_at": now,
                }
            )
        write_tombstone_part(run_root / "results", checkpoint, pa.Table.from_pylist(rows, schema=schema))
