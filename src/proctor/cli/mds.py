"""``proctor mds``: look into MDS data sets."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from proctor.cli.output import counted, json_line, stdout, table
from proctor.cli.run import Json

app = typer.Typer(help="Look into MDS data sets.", no_args_is_help=True)
DataSet = Annotated[str, typer.Argument(metavar="PATH", help="Directory or URL with an index.json.")]


@app.command("inspect")
def inspect(path: DataSet, json: Json = False) -> None:
    """Describe a data set from its index; no shard is opened."""
    from proctor.sources.mds.verify import inspect as inspect_mds

    found = inspect_mds(path)
    if json:
        json_line("mds", **asdict(found))
        return
    stdout.print(f"[bold]{counted(found.rows, 'row')}[/] in {counted(found.shards, 'shard')}", highlight=False)
    stdout.print(
        f"{found.raw_bytes / 1e6:,.1f} MB, {found.stored_bytes / 1e6:,.1f} MB as stored; "
        f"{found.mean_row_bytes:,.0f} bytes a row; largest shard {found.largest_shard_bytes / 1e6:,.1f} MB"
    )
    stdout.print(f"compression: {', '.join(found.compressions) or 'none'}")
    stdout.print(f"hashes: {', '.join(found.hashes) or 'none (a flipped byte inside a value cannot be noticed)'}")
    stdout.print(table(["column", "encoding", "type"], [(c.name, c.encoding, c.arrow_type) for c in found.columns]))


@app.command("verify")
def verify(path: DataSet, json: Json = False) -> None:
    """Read every byte of a data set and list what is wrong. Exit code 2 when something is."""
    from proctor.sources.mds.verify import verify as verify_mds

    count = 0
    for count, finding in enumerate(verify_mds(path), start=1):  # noqa: B007 (the last count is the result)
        if json:
            json_line("finding", **asdict(finding))
        else:
            where = finding.file if finding.row is None else f"{finding.file}, row {finding.row}"
            stdout.say(f"{where}: {finding.problem}")
    if json:
        json_line("done", findings=count)
    else:
        stdout.print(counted(count, "finding") if count else "every shard is sound")
    raise typer.Exit(2 if count else 0)


@app.command("row")
def row(
    path: DataSet,
    row_id: Annotated[int, typer.Argument(metavar="ROW_ID", min=0, help="Position of the row, counted from 0.")],
    json: Json = False,
) -> None:
    """Print one row; of images and arrays, what they are. Reads no more than that row of an uncompressed shard.

    Exit code 2 when the row cannot be read.
    """
    from proctor.sources.mds.show import in_words, show_row

    found = show_row(path, row_id)
    if json:
        json_line("row", **asdict(found))
    elif found.error_kind is not None:
        stdout.say(f"{found.error_kind}: {found.error_message}")
    else:
        stdout.print(
            table(["column", "type", "value"], [(cell.column, cell.type, in_words(cell.value)) for cell in found.cells])
        )
    raise typer.Exit(2 if found.error_kind else 0)
