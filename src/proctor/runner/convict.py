"""Final records for rows that kill whoever reads, prepares or marks them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from proctor.results import write_records
from proctor.rows import Event
from proctor.runner.course import Sweep
from proctor.runner.exam import Exam
from proctor.runner.hub import HubClient
from proctor.runner.trail import CRASHES

_DOING = {"read": "reading", "prepare": "preparing", "score": "marking"}


def convict(exam: Exam, sweep: Sweep, todo: BitMap64, hub: HubClient, *, ended: bool) -> None:
    """Closes the sweep at the hub, and gives each row of `todo` that is found guilty its final record.

    Args:
        ended: whether the sweep came to its end (see `trail.Trail.close`).
    """
    guilty = {row: stages for row, stages in hub.close_sweep(ended=ended).items() if row in todo}
    if not guilty:
        return
    records = [_record(row, stages, sweep) for row, stages in guilty.items()]
    write_records(exam.run.results, pa.Table.from_pylist(records, schema=exam.record_schema))
    for record in records:
        kind, message = record["error_kind"], record["error_message"]
        hub.emit(Event("row.convicted", action=kind, rows=(record["row_id"],), count=1, message=message))


def _record(row: int, stages: list[str], sweep: Sweep) -> dict[str, Any]:
    message = f"the worker died {len(stages)} times with this row alone in it, the last time while {_DOING[stages[-1]]}"
    return {
        "row_id": row,
        "checkpoint": sweep.checkpoint,
        "error_kind": CRASHES[stages[-1]].value,
        "error_message": message,
        "attempts": len(stages),
        "sweep": sweep.number,
        "finished_at": datetime.now(UTC),
    }
