"""``proctor trace sql`` and ``proctor trace notes``: ask a trace directly; what to know before trusting it."""

from __future__ import annotations

import csv as csv_format
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proctor.cli.output import json_line, stderr, stdout, table, write
from proctor.cli.run import Json
from proctor.cli.trace.heading import TraceFile, head_of, opened, show_head, show_notes

if TYPE_CHECKING:
    from proctor.trace.sql import Answer

_STEPS_A_SECOND = 50_000_000
_ROWS_A_TABLE = 200
_CELL = 200


def notes(file: TraceFile, json: Json = False) -> None:
    """Say what a trace is: tool and schema, GPUs, processes, window, and what to know before trusting a figure."""
    with opened(file, notes=False) as trace:
        if json:
            json_line("trace", **head_of(trace))
            return
        show_head(trace)
        show_notes(trace)


def sql(
    file: TraceFile,
    question: Annotated[str, typer.Argument(metavar="SELECT", help="One SELECT, over views and tables.")],
    limit: Annotated[int, typer.Option("--limit", min=0, help="At most so many rows; 0 for all.")] = 1000,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, max=1e9, help="Give up after about so many seconds; 0: never.")
    ] = 600,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    json: Json = False,
) -> None:
    """Ask a trace in SQL, read-only. Views: kernels, copies, memsets, syncs, graphs, calls, annotations, strings ...

    The captured environment of the profiled process is never shown, nor are the arguments it was started with.
    """
    from proctor.trace.sql import asked

    steps = max(1, int(timeout * _STEPS_A_SECOND)) if timeout else None
    with opened(file) as trace, asked(trace, question, limit=limit or None, steps=steps) as answer:
        if json:
            _print_json(answer)
        elif csv:
            _print_csv(answer)
        else:
            _print_tables(answer)
        if answer.cut and not json:
            stderr.print(f"[yellow]cut[/] after {limit:,} rows: there are more (--limit 0 shows all)")


def _print_json(answer: Answer) -> None:
    count = 0
    for row in answer.rows():
        json_line("row", values=dict(zip(answer.columns, map(_plain, row), strict=True)))
        count += 1
    json_line("done", rows=count, cut=answer.cut)


def _print_csv(answer: Answer) -> None:
    rows = answer.rows()
    lines: list[Sequence[Any]] = [answer.columns]
    while lines and write(_csv(lines)):  # a reader who goes away (`| head`) ends it
        lines = list(islice(rows, _ROWS_A_TABLE))


def _csv(rows: Sequence[Sequence[Any]]) -> str:
    text = StringIO()
    csv_format.writer(text, lineterminator="\n").writerows([_plain(cell) for cell in row] for row in rows)
    return text.getvalue()


def _print_tables(answer: Answer) -> None:
    """Tables of a bounded number of rows, since a table's widths are known only once all its rows are."""
    rows = answer.rows()
    shown = False
    while batch := list(islice(rows, _ROWS_A_TABLE)):
        stdout.print(table(answer.columns, list(_cells(batch))))
        shown = True
    if not shown:
        stdout.print("no rows")


def _cells(rows: Sequence[tuple[Any, ...]]) -> Iterator[list[object]]:
    for row in rows:
        cells = (str(cell) if isinstance(cell, int) else _plain(cell) for cell in row)  # ids are no amounts: no commas
        yield [cell[:_CELL] + "..." if isinstance(cell, str) and len(cell) > _CELL else cell for cell in cells]


def _plain(cell: Any) -> Any:
    return cell.hex() if isinstance(cell, bytes) else cell
