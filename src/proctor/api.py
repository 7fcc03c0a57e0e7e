"""The Python way in: ``proctor.run(spec)`` does what ``proctor run`` does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace

from proctor.rows import Event, told
from proctor.runner.loop import run as run_loop
from proctor.runner.only import row_list
from proctor.runner.outcome import RunOutcome
from proctor.runner.snapshot import Observer, quiet
from proctor.spec import RunSpec
from proctor.view.audit import write_audit_page
from proctor.view.report import write_report


def run(
    spec: RunSpec,
    *,
    only: Iterable[int] | None = None,
    fresh: bool = False,
    force: bool = False,
    observer: Observer = quiet,
) -> RunOutcome:
    """Evaluates `spec` (or resumes it) and writes the report. See `proctor.runner.loop.run`.

    A report that cannot be written costs the report, not the run: the outcome then has no `report`, and the reason is
    among its `reasons` and, if it can be written, an event of the run.

    Raises:
        UserError: the spec, its source, task or engine cannot work or does not fit, the source lacks a row of `only`,
            or the directory holds another run.
    """
    rows = None if only is None else row_list(only)
    return with_report(run_loop(spec, only=rows, fresh=fresh, force=force, observer=observer))


def with_report(outcome: RunOutcome) -> RunOutcome:
    """The outcome with its report, which is written now; or with the reason why there is none."""
    if not outcome.held:
        return outcome
    if outcome.audit is not None and not outcome.audit.failure:
        page, reason = _attempt(lambda: write_audit_page(outcome.run.folder))
        if page is None:
            outcome = _without(outcome, "audit", "audit.page_failed", reason)
    report, reason = _attempt(lambda: write_report(outcome.run))
    return (
        replace(outcome, report=report) if report is not None else _without(outcome, "report", "report.failed", reason)
    )


def _attempt(write: Callable[[], str]) -> tuple[str | None, str]:
    """Where a page was written, or the reason why not: whatever it meets, the records are written."""
    try:
        return write(), ""
    except Exception as error:
        return None, f"not written: {told(error)}"


def _without(outcome: RunOutcome, what: str, event: str, reason: str) -> RunOutcome:
    """The outcome with the reason why a page is missing, which is an event of the run as well."""
    with contextlib.suppress(OSError):
        outcome.run.append_event(Event(event, message=reason))
    return replace(outcome, reasons={**outcome.reasons, what: reason})
