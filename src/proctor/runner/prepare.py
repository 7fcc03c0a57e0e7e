"""Second stage: from a source row to a checked request. A fault here costs its own row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from proctor.images.rules import ImageRules
from proctor.prepare import prepare_sample
from proctor.rows import ErrorKind, Failure, Sample, told
from proctor.runner.blocks import PREPARED, table_of
from proctor.runner.hub import HubClient
from proctor.runner.patience import patience
from proctor.sources.samples import to_samples
from proctor.spec import ColumnsSpec
from proctor.tasks import Task


@dataclass(frozen=True, slots=True)
class PrepareSetup:
    """What it takes to prepare rows.

    Attributes:
        row_seconds: longest time over one row.
        alone: given when blocks are one row, which is then traced and answers for all that goes wrong.
        images: what is done to images.
    """

    task: Task
    columns: ColumnsSpec
    row_seconds: float
    alone: HubClient | None = None
    images: ImageRules = field(default_factory=ImageRules)


def prepare(block: pa.Table, *, setup: PrepareSetup) -> pa.Table:
    """Prepares a block of source rows (see `proctor.sources.base`) for the engine."""
    if setup.alone is None:
        return _prepare(block, setup)
    row_id = block["row_id"][0].as_py()
    with setup.alone.inside(row_id, "prepare"):
        try:
            return _prepare(block, setup)
        except Exception as error:
            return table_of([_failed(row_id, Failure(ErrorKind.PREPARE_FAILED, told(error)))], PREPARED, 1)


def _prepare(block: pa.Table, setup: PrepareSetup) -> pa.Table:
    notices = block["notice"].to_pylist()
    rows = []
    for notice, sample in zip(notices, to_samples(block, setup.columns), strict=True):
        row = _prepared(sample, setup) if isinstance(sample, Sample) else _failed(sample.row_id, sample.failure)
        rows.append({**row, "sample_id": sample.sample_id, "notice": notice})
    return table_of(rows, PREPARED, block.num_rows)


def _prepared(sample: Sample, setup: PrepareSetup) -> dict[str, Any]:
    row: dict[str, Any] = {"row_id": sample.row_id, "n_images": len(sample.images)}
    try:
        with patience(setup.row_seconds):
            outcome = prepare_sample(sample, setup.task, setup.images)
    except TimeoutError as error:  # the time was over just as the row was done
        outcome = Failure(ErrorKind.PREPARE_FAILED, told(error))
    if isinstance(outcome, Failure):
        return {**row, **_failed(sample.row_id, outcome)}
    return {**row, **outcome._asdict()}


def _failed(row_id: int, failure: Failure) -> dict[str, Any]:
    return {
        "row_id": row_id,
        "error_kind": failure.kind.value,
        "error_message": failure.message,
        "images": None,
    }
