"""``proctor report``."""

from __future__ import annotations

from proctor.cli.output import json_line, stdout
from proctor.cli.run import Json, RunPath


def report(run_dir: RunPath, json: Json = False) -> None:
    """Write (or refresh) a run's report: one HTML file that needs no network."""
    from proctor.results import RunDir
    from proctor.view.report import write_report

    written = write_report(RunDir.existing(run_dir))
    if json:
        json_line("report", path=written)
        return
    stdout.say(written)
