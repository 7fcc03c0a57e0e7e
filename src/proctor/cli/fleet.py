"""``proctor fleet``: many runs on one Ray cluster."""

from __future__ import annotations

import typer

from proctor.cli import fleet_list, fleet_plan, fleet_watch

app = typer.Typer(help="Many runs on one Ray cluster, unattended.", no_args_is_help=True)
app.command("plan")(fleet_plan.plan)
app.command("list")(fleet_list.list_cells)
app.command("submit")(fleet_watch.submit)
app.command("watch")(fleet_watch.watch)
app.command("reap")(fleet_watch.reap)
app.command("stop")(fleet_watch.stop)
app.command("unit", hidden=True)(fleet_watch.unit)
