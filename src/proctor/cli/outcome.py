"""What is said when a run has ended: a ledger that a person can check by eye, the scores, and where everything is."""

from __future__ import annotations

from proctor.cli.output import json_line, stdout, table
from proctor.results import Ledger
from proctor.runner.outcome import ExitCode, RunOutcome
from proctor.tasks import Metric

_VERDICTS = {
    ExitCode.COMPLETE: "[bold green]complete[/]: every row is accounted for",
    ExitCode.TOO_MANY_ERRORS: "[bold yellow]complete, but too many errors[/]: every row is accounted for",
    ExitCode.INCOMPLETE: "[bold red]incomplete[/]",
    ExitCode.INTERRUPTED: "[bold yellow]interrupted[/]",
}
_SHOWN_METRICS = 12


def show_outcome(outcome: RunOutcome, *, resume: str, json: bool) -> None:
    """Prints the outcome for a person, or as one JSON line."""
    if json:
        json_line("done", **outcome_json(outcome))
        return
    stdout.print(table(_LEDGER_COLUMNS, [_ledger_row(ledger) for ledger in outcome.reconciliation.ledgers]))
    _show_errors(outcome)
    _show_metrics(outcome)
    stdout.print(_VERDICTS[outcome.exit_code])
    for name, reason in outcome.reasons.items():
        stdout.print(f"[red]{name}: the engine was given up:[/] ", end="")
        stdout.print(reason, markup=False, soft_wrap=True)
    for notice in sorted({text for ledger in outcome.reconciliation.ledgers for text in ledger.notices}):
        stdout.print(f"source: {notice}", markup=False, soft_wrap=True, style="red")
    if outcome.exit_code in (ExitCode.INCOMPLETE, ExitCode.INTERRUPTED):
        stdout.print(f"resume with: {resume}", markup=False, soft_wrap=True)
    stdout.print(f"results: {outcome.run.results}", markup=False, soft_wrap=True)
    stdout.print(f"report:  {outcome.report or 'not written, see events.jsonl'}", markup=False, soft_wrap=True)


def outcome_json(outcome: RunOutcome) -> dict[str, object]:
    """The outcome as plain data."""
    return {
        "exit_code": int(outcome.exit_code),
        "verdict": outcome.exit_code.name.lower(),
        "reconciliation": outcome.reconciliation.to_json(),
        "metrics": outcome.summaries,
        "reasons": outcome.reasons,
        "run_dir": str(outcome.run.root),
        "report": None if outcome.report is None else str(outcome.report),
    }


_LEDGER_COLUMNS = ["checkpoint", "expected", "answered", "errors", "unanswered", "missing", "duplicate", "unexpected"]


def _ledger_row(ledger: Ledger) -> list[object]:
    return [
        ledger.checkpoint,
        ledger.expected,
        ledger.answered,
        sum(ledger.errors.values()),
        sum(ledger.unanswered.values()),
        ledger.missing,
        ledger.duplicate,
        ledger.unexpected,
    ]


def _show_errors(outcome: RunOutcome) -> None:
    rows = [
        (ledger.checkpoint, kind, count)
        for ledger in outcome.reconciliation.ledgers
        for kind, count in sorted((ledger.errors | ledger.unanswered).items())
    ]
    if rows:
        stdout.print(table(["checkpoint", "error", "rows"], rows))


def _show_metrics(outcome: RunOutcome) -> None:
    names = list(dict.fromkeys(m.name for s in outcome.summaries.values() for m in s.metrics))[:_SHOWN_METRICS]
    rows = []
    for checkpoint, summary in outcome.summaries.items():
        by_name = {metric.name: metric for metric in summary.metrics}
        rows += [(checkpoint, name, *_metric_cells(by_name[name])) for name in names if name in by_name]
    stdout.print(table(["checkpoint", "metric", "value", "95 % interval", "rows"], rows))


def _metric_cells(metric: Metric) -> tuple[str, str, str]:
    if metric.value is None:
        return "-", "-", f"0 of {metric.of:,}"
    unit = f" {metric.unit}" if metric.unit else ""
    interval = "-" if metric.low is None or metric.high is None else f"{metric.low:.4f} to {metric.high:.4f}{unit}"
    return f"{metric.value:.4f}{unit}", interval, f"{metric.n:,} of {metric.of:,}"
