"""``proctor trace``: read GPU traces. ``proctor trace FILE`` alone prints the summary."""

from __future__ import annotations

import typer
from typer.core import TyperGroup
from typing_extensions import override

from proctor.cli.trace import (
    census,
    decode,
    diff,
    export,
    gaps,
    lineup,
    nvtx,
    occupancy,
    overlap,
    sql,
    stakeout,
    summary,
    timeline,
)

_DEFAULT = "summary"


class _SummaryByDefault(TyperGroup):
    """A first word that is no verb is a file: the summary is what one asks of a file without saying what."""

    @override
    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_SummaryByDefault,
    help="Read GPU traces (Nsight Systems, PyTorch profiler): where time went, what changed, and how one knows.",
    no_args_is_help=True,
)

app.command("census")(census.census)
app.command("gaps")(gaps.gaps)
app.command("overlap")(overlap.overlap)
app.command("timeline")(timeline.timeline)
app.command("nvtx")(nvtx.nvtx)
app.command("export")(export.export)
app.command("occupancy")(occupancy.occupancy)
app.command("stakeout")(stakeout.stakeout)
app.command("diff")(diff.diff)
app.command("lineup")(lineup.lineup)
app.command("risks")(lineup.risks)
app.command("decode")(decode.decode)
app.command("sql")(sql.sql)
app.command("notes")(sql.notes)
app.command("summary")(summary.summary)
