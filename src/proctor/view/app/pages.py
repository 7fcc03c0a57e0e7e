"""What the pages show, gathered before a line of HTML is written."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import QueryParams

from proctor.results import RunDir
from proctor.results.parts import checkpoint_of
from proctor.rows import ErrorKind, UserError
from proctor.runner.status import read_status
from proctor.view.app.links import Address
from proctor.view.app.shown import shown, unasked
from proctor.view.browse.filters import FilterError, complete, value_text
from proctor.view.browse.places import Found, Opened, Survey, survey
from proctor.view.browse.rows import (
    Cursor,
    Neighbours,
    Page,
    RowTable,
    attempts_of,
    count,
    neighbours,
    page,
    records_of,
)
from proctor.view.browse.runs import RunLine, ledgers_of, run_line
from proctor.view.gather import gather

MOST_RUNS = 200
MOST_EVENTS = 200
MOST_WAYS = 24
_SHORT = ("checkpoint", "sample_id", "error_kind", "finish_reason", "engine")
"""Columns of texts that are a word or two."""


@dataclass(frozen=True, slots=True)
class Directory:
    """An opened directory as the list shows it.

    Attributes:
        runs: each with its address and what is known of it.
        others: what lies there besides, to be looked at with other commands.
        left_out: how many runs more there are.
    """

    name: str
    location: str
    runs: list[tuple[Found, Address, RunLine]]
    others: list[Found]
    left_out: int
    survey: Survey


def runs_page(opened: Sequence[Opened]) -> list[Directory]:
    """The list of runs."""
    return [_directory(one) for one in opened]


def _directory(opened: Opened) -> Directory:
    seen = survey(opened)
    runs = [found for found in seen.found if found.kind == "run"]
    with ThreadPoolExecutor(opened.folder.concurrency) as pool:
        read = list(pool.map(lambda found: _line(opened, found), runs[:MOST_RUNS]))
    lines = [(found, Address(opened.name, found.path), line) for found, line in zip(runs, read, strict=False)]
    others = [found for found in seen.found if found.kind != "run"]
    return Directory(opened.name, opened.folder.location, lines, others, max(0, len(runs) - MOST_RUNS), seen)


def _line(opened: Opened, found: Found) -> RunLine:
    try:
        return run_line(opened.below(found.path))
    except UserError as error:  # it has become a link since it was found
        return RunLine(problem=str(error))


def run_page(run: RunDir) -> dict[str, Any]:
    """A run.

    Raises:
        UserError: a file of it is damaged, so much as Proctor itself looks at it; else one of `DAMAGE`.
        OSError: storage failed.
    """
    ledgers_of(run)  # its types are checked here, and nowhere else
    view, status, events = gather(run, rows=False), read_status(run), run.events()
    return {
        "view": view,
        "status": status,
        "faults": [(fault, f"error.kind = {value_text(fault.kind)}") for fault in view.faults],
        "events": events[-MOST_EVENTS:],
        "events_left_out": max(0, len(events) - MOST_EVENTS),
    }


def rows_page(table: RowTable, address: Address, given: QueryParams) -> dict[str, Any]:
    """Rows of a run; a filter that is none leaves the table empty and is told, with the place that is wrong."""
    columns = address.columns or unasked(table.columns)
    found, matched, wrong = Page([], None, None), 0, None
    try:
        after, before = (_place(given, name, address) for name in ("after", "before"))
        matched = count(table, address.query)
        found = page(table, address.query, columns, size=address.size, after=after, before=before)
    except UserError as error:
        wrong = error
    known = table.columns.own
    return {
        "columns": [name for name in dict.fromkeys(["row_id", "checkpoint", *columns]) if name in known],
        "known": known,
        "long": [name for name, column in known.items() if column.kind == "text" and name not in _SHORT],
        "names": [(name, column.kind) for name in table.columns.names if (column := table.columns.get(name))],
        "kinds": list(ErrorKind),
        "page": found,
        "total": table.total,
        "matched": matched,
        "wrong": wrong,
        "marked": _marked(address.query.filter, wrong),
        "ways_on": _ways_on(table, address, wrong),
        "damaged": table.damaged,
    }


def row_page(run: RunDir, table: RowTable, address: Address, row_id: int, checkpoint: str | None) -> dict[str, Any]:
    """A row, for one checkpoint or all."""
    records = records_of(table, row_id, checkpoint)
    beside = Neighbours(None, None)
    if checkpoint is not None and records:
        beside = neighbours(table, address.query, row_id, checkpoint)
    return {
        "row_id": row_id,
        "checkpoint": checkpoint,
        "records": [shown(record) for record in records],
        "attempts": attempts_of(run, row_id, checkpoint) if checkpoint is not None and records else [],
        "beside": beside,
    }


def _place(given: QueryParams, name: str, address: Address) -> Cursor | None:
    text = given.get(name, "")
    return Cursor.from_text(text, address.query.sort.column) if text else None


def _ways_on(table: RowTable, address: Address, wrong: UserError | None) -> list[tuple[str, str]]:
    """What may follow a filter that breaks off: words, and the addresses of the filter with each."""
    text = address.query.filter
    if not isinstance(wrong, FilterError) or wrong.end < len(text):
        return []
    checkpoints = sorted({checkpoint_of(part) for part in table.parts})
    values: dict[str, Sequence[str]] = {"error_kind": list(ErrorKind), "checkpoint": checkpoints}
    found = complete(text, table.columns, values)[:MOST_WAYS]
    return [(one.text, address.with_filter(text[: one.start] + one.text)) for one in found]


def _marked(text: str, wrong: UserError | None) -> tuple[str, str, str] | None:
    """What stands before, at and after the place where a filter is wrong."""
    if not isinstance(wrong, FilterError):
        return None
    return text[: wrong.start], text[wrong.start : wrong.end] or "\u2009", text[wrong.end :]
