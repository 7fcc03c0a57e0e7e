"""The Python way in: ``proctor.run(spec)`` does what ``proctor run`` does."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from proctor.rows import Event
from proctor.runner.loop import run as run_loop
from proctor.runner.outcome import RunOutcome
from proctor.runner.snapshot import Observer, quiet
from proctor.spec import RunSpec
from proctor.view.report import write_report


def run(spec: RunSpec, *, fresh: bool = False, observer: Observer = quiet) -> RunOutcome:
    """Evaluates `spec` (or resumes it) and writes the report. See `proctor.runner.loop.run`.

    A report that cannot be written costs the report, not the run: the outcome then has no `report`, and the reason is
    an event of the run.

    Raises:
        UserError: the spec, its source, task or engine cannot work, or the directory holds another run.
    """
    outcome = run_loop(spec, fresh=fresh, observer=observer)
    if not outcome.held:
        return outcome
    try:
        return replace(outcome, report=write_report(outcome.run))
    except Exception as error:  # whatever a report meets, the records are written and the verdict stands
        with contextlib.suppress(OSError):
            outcome.run.append_event(Event("report.failed", message=f"{type(error).__name__}: {error}"))
        return outcome
