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

_ROWS_A_PART = 500_000
_UNSEEN = LastError(ErrorKind.LOST.value, "no worker returned this row")


def write_tombstones(run: Place, checkpoint: str, missing: BitMap64, schema: pa.Schema, sweep: int) -> None:
    """Writes one record into the run directory `run` for each id in `missing`.

    It tells the row's last error if it was ever tried, else ``lost``.
    """
    folder = open_folder(run)
    errors = last_errors(folder.below("attempts"), checkpoint)
    facts = {"checkpoint": checkpoint, "sweep": sweep, "finished_at": datetime.now(UTC)}
    remaining = iter(missing)
    while ids := list(islice(remaining, _ROWS_A_PART)):
        last = [errors.get(row_id, _UNSEEN) for row_id in ids]
        # By column: an interrupted run may leave millions of rows, and whoever interrupted it is waiting.
        columns = {
            **{field.name: pa.nulls(len(ids), field.type) for field in schema},
            **{name: pa.repeat(pa.scalar(value, schema.field(name).type), len(ids)) for name, value in facts.items()},
            "row_id": ids,
            "sample_id": [error.sample_id for error in last],
            "error_kind": [error.kind for error in last],
            "error_message": [error.message for error in last],
        }
        write_tombstone_part(folder.below("results"), checkpoint, pa.table(columns, schema=schema))
