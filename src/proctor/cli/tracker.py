"""``proctor tracker``: experiment trackers of a run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from proctor.cli.output import json_line, stdout, table
from proctor.cli.run import Json, RunPath

app = typer.Typer(help="Experiment trackers of a run.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Experiment trackers of a run."""


@app.command("sync")
def sync(
    run_dir: RunPath,
    tracker: Annotated[str | None, typer.Option("--tracker", metavar="NAME", help="Only this tracker.")] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="Most time for each tracker.")] = 600.0,
    json: Json = False,
) -> None:
    """Send what a run's trackers did not get while it ran; what has arrived is not sent again.

    Exit code: 0 every tracker has everything, 2 something is still left.
    """
    from proctor.results import RunDir
    from proctor.trackers import sync as sync_trackers

    run = RunDir.existing(run_dir)
    spec = run.spec()
    assert spec is not None
    with run.locked(lambda _reason: None):
        closed = sync_trackers(spec.trackers, run.folder, only=tracker, seconds=seconds)
    if json:
        for state in closed:
            json_line("tracker", **asdict(state), complete=state.complete)
    elif not closed:
        stdout.print("the run has no trackers")
    else:
        rows = [[state.name, f"{state.arrived:,} of {state.written:,}", state.trouble] for state in closed]
        stdout.print(table(["tracker", "arrived", "trouble"], rows))
    raise typer.Exit(0 if all(state.complete for state in closed) else 2)
