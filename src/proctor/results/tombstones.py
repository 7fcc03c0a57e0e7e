"""Tombstones: records for rows that are still unanswered when a run ends, so that none is missing in silence."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

import pyarrow as pa
from pyroaring import BitMap64

from proctor.results.attempts import LastError, last_errors
from proctor.results.parts import write_tombstone_part
from proctor.rows import ErrorKind
from proctor.storage.folder import Place, open_folder

_ROWS_A_PART = 100_000


def write_tombstones(run: Place, checkpoint: str, missing: BitMap64, schema: pa.Schema, sweep: int) -> None:
    """Writes one record into the run directory `run` for each id in `missing`.

    It tells the row's last error if it was ever tried, else ``lost``.
    """
    folder = open_folder(run)
    errors = last_errors(folder.below("attempts"), checkpoint)
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
        write_tombstone_part(folder.below("results"), checkpoint, pa.Table.from_pylist(rows, schema=schema))
