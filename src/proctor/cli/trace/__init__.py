"""``proctor trace``: read GPU traces. ``proctor trace FILE`` alone prints the summary."""

from __future__ import annotations

import typer

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
from proctor.cli.verbs import by_default

app = typer.Typer(
    cls=by_default("summary"),
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
