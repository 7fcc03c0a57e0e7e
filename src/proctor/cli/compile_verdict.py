"""``proctor compile verdict``: judges a stored bench again, and writes its page anew. Nothing is run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proctor.cli.output import json_line, stdout
from proctor.cli.run import Json
from proctor.rows import UserError

if TYPE_CHECKING:
    from proctor.compile.model import Measured

MOST_ROWS = 10**15
"""More of them are a slip of the keyboard."""


def add_verdict(app: typer.Typer) -> None:
    """Registers the command."""
    app.command("verdict")(verdict)


def verdict(
    bench: Annotated[
        Path | None, typer.Argument(metavar="[BENCH]", help="A stored bench: compile.json, or the folder it lies in.")
    ] = None,
    published: Annotated[
        bool, typer.Option("--published", help="Judge the published comparison that comes with Proctor instead.")
    ] = False,
    rows: Annotated[
        int | None,
        typer.Option(
            "--rows", min=0, max=MOST_ROWS, help="Rows of the planned run. Default: those of the bench's source."
        ),
    ] = None,
    page: Annotated[
        Path | None, typer.Option("--page", metavar="FILE", help="Where the page goes. Default: beside the bench.")
    ] = None,
    json: Json = False,
) -> None:
    """Judge a stored bench of compilation again: what to compile, after how many rows that pays, what is doubtful.

    Exit code: 0 compile what is named, 4 do not, 3 could not tell, 1 a mistake in the input.
    """
    from msgspec.structs import replace

    if (bench is None) != published:
        raise UserError(
            "give the file of a stored bench, or --published, and not both", where="proctor compile verdict"
        )
    measured, beside = _measured(bench)
    tell(measured if rows is None else replace(measured, rows=rows), page or beside, json=json)


def tell(measured: Measured, page: Path | None, *, json: bool) -> None:
    """Judges, writes the page if there is a place for it, tells, and ends the command with the verdict's exit code."""
    from proctor.cli.compile_text import show_verdict, verdict_json
    from proctor.compile.verdict import exit_code
    from proctor.compile.verdict import verdict as judged
    from proctor.view.compile import write_compile_page

    found = judged(measured)
    if page is not None:
        write_compile_page(page, measured, found)
    if json:
        json_line("compile_verdict", **verdict_json(found), page=None if page is None else str(page))
    else:
        show_verdict(measured, found)
        if page is not None:
            stdout.say(f"page: {page}")
    raise typer.Exit(exit_code(found))


def _measured(bench: Path | None) -> tuple[Measured, Path | None]:
    """What was measured, and where its page goes."""
    from proctor.compile.published import published
    from proctor.compile.store import page_of, read_bench

    return (published(), None) if bench is None else (read_bench(bench), page_of(bench))
