"""The Python way in: ``proctor.run(spec)`` does what ``proctor run`` does."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from proctor.rows import Event, told
from proctor.runner.loop import run as run_loop
from proctor.runner.outcome import RunOutcome
from proctor.runner.snapshot import Observer, quiet
from proctor.spec import RunSpec
from proctor.view.report import write_report


def run(spec: RunSpec, *, fresh: bool = False, force: bool = False, observer: Observer = quiet) -> RunOutcome:
    """Evaluates `spec` (or resumes it) and writes the report. See `proctor.runner.loop.run`.

    A report that cannot be written costs the report, not the run: the outcome then has no `report`, and the reason is
    among its `reasons` and, if it can be written, an event of the run.

    Raises:
        UserError: the spec, its source, task or engine cannot work or does not fit, or the directory holds another run.
    """
    return with_report(run_loop(spec, fresh=fresh, force=force, observer=observer))


def with_report(outcome: RunOutcome) -> RunOutcome:
    """The outcome with its report, which is written now; or with the reason why there is none."""
    if not outcome.held:
        return outcome
    try:
        return replace(outcome, report=write_report(outcome.run))
    except Exception as error:  # whatever a report meets, the records are written and the verdict stands
        reason = f"not written: {told(error)}"
        with contextlib.suppress(OSError):
            outcome.run.append_event(Event("report.failed", message=reason))
        return replace(outcome, reasons={**outcome.reasons, "report": reason})
