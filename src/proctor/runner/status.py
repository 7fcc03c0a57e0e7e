"""How a run stands, read from its directory alone: while it is live and after a crash, without Ray."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from proctor.results import RunDir
from proctor.results.parts import checkpoint_of, parts_of, read_each


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run as its files tell it.

    Attributes:
        state: ``running``, ``crashed`` (its driver is gone without a word), or the name of its exit code.
        done: rows with a final record, by checkpoint.
        errors: those of them that ended in an error.
        total: rows expected of each checkpoint.
        last: the last ``status.json``.
        verdict: the last ``reconciliation.json``, None before the run first closed.
        doubts: what contradicts `state`, one line a checkpoint: records are gone since the run ended.
    """

    state: str
    total: int
    done: dict[str, int]
    errors: dict[str, int]
    last: dict[str, Any]
    verdict: dict[str, Any] | None
    doubts: list[str]


def read_status(run: RunDir) -> RunStatus:
    """Reads the status of `run`.

    Raises:
        UserError: the stored spec cannot be read.
    """
    last = run.read("status") or {}
    spec = run.spec()
    names = [checkpoint.name for checkpoint in spec.engine.checkpoints] if spec else []
    done, errors = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for part, footer in read_each(run.results, parts_of(run.results, tombstones=False), pq.read_metadata):
        if not isinstance(footer, Exception):  # a damaged part runs again when the run is resumed
            name = checkpoint_of(part)
            done[name] = done.get(name, 0) + footer.num_rows
            errors[name] = errors.get(name, 0) + _set_values(footer, "error_kind")
    state = last.get("state", "starting")
    if run.live:
        state = "running"
    elif state in ("running", "starting"):
        state = "crashed"
    source = run.source()
    doubts = [] if state in ("running", "crashed") else _doubts(last, done)
    total = 0 if source is None else source.expected
    return RunStatus(state, total, done, errors, last, run.read("reconciliation"), doubts)


def _doubts(last: dict[str, Any], done: dict[str, int]) -> list[str]:
    """What contradicts the last word of a run that has ended: records that are gone."""
    ended = {name: entry.get("done", 0) for name, entry in last.get("checkpoints", {}).items()}
    return [
        f"{name}: {done.get(name, 0):,} records are here, {count:,} were when the run ended"
        for name, count in ended.items()
        if done.get(name, 0) < count
    ]


def _set_values(footer: pq.FileMetaData, column: str) -> int:
    """How many rows of a part have a value in `column`, by the statistics in its footer."""
    position = footer.schema.names.index(column)
    columns = [footer.row_group(number).column(position) for number in range(footer.num_row_groups)]
    return sum(c.num_values - c.statistics.null_count for c in columns)
