"""``proctor errors`` and ``proctor export``: what the records say."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from proctor.cli.output import counted, json_line, stdout, table
from proctor.cli.run import Json, RunPath

Checkpoint = Annotated[str | None, typer.Option("--checkpoint", help="Only this checkpoint.")]


class Format(StrEnum):
    """Formats of an export."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


def errors(
    run_dir: RunPath,
    kind: Annotated[str | None, typer.Option("--kind", help="Only this error kind, e.g. infer.crashed.")] = None,
    checkpoint: Checkpoint = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many rows.")] = 50,
    json: Json = False,
) -> None:
    """List the rows that ended in an error, with the reason."""
    from proctor.results import RunDir
    from proctor.results.export import errors_of

    found, total = errors_of(RunDir.existing(run_dir), kind=kind, checkpoint=checkpoint, limit=limit)
    if json:
        for row in found:
            json_line("error", **row)
        return
    stdout.print(table(["row", "sample", "checkpoint", "kind", "message"], [list(row.values()) for row in found]))
    stdout.print(f"{len(found):,} of {total:,} rows shown" if total > len(found) else counted(total, "row"))


def export(
    run_dir: RunPath,
    format_: Annotated[Format, typer.Option("--format", help="Format of the file.")] = Format.PARQUET,
    out: Annotated[Path | None, typer.Option("--out", help="File to write. Default: records.FORMAT in RUN.")] = None,
    checkpoint: Checkpoint = None,
    json: Json = False,
) -> None:
    """Write all records into one file."""
    from proctor.results import RunDir
    from proctor.results.export import export_records

    rows, target = export_records(RunDir.existing(run_dir), format_.value, checkpoint=checkpoint, out=out)
    if json:
        json_line("export", records=rows, path=target)
        return
    stdout.say(f"{counted(rows, 'record')} in {target}")
