"""``proctor report``."""

from __future__ import annotations

from proctor.cli.output import stdout
from proctor.cli.run import RunPath
from proctor.results import RunDir


def report(run_dir: RunPath) -> None:
    """Write (or refresh) a run's report: one HTML file that needs no network."""
    from proctor.view.report import write_report

    stdout.print(str(write_report(RunDir.existing(run_dir))), markup=False, soft_wrap=True)
