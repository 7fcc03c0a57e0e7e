"""What is said when a run has ended: a ledger that a person can check by eye, the scores, and where everything is."""

from __future__ import annotations

import msgspec

from proctor.audit.standing import Standing
from proctor.cli.output import json_line, stdout, table
from proctor.results import Ledger
from proctor.runner.outcome import ExitCode, RunOutcome
from proctor.runner.snapshot import status_json
from proctor.tasks import Summary

_VERDICTS = {
    ExitCode.COMPLETE: "[bold green]complete[/]: every row is accounted for",
    ExitCode.MISTAKE: "[bold red]complete, but without metrics[/]: every row is accounted for",
    ExitCode.TOO_MANY_ERRORS: "[bold yellow]complete, but too many errors[/]: every row is accounted for",
    ExitCode.INCOMPLETE: "[bold red]incomplete[/]",
    ExitCode.INTERRUPTED: "[bold yellow]interrupted[/]",
}
_SIDE_BY_SIDE = 4
_BAR = 40
_CELL = "value (95 % interval) rows covered"


def show_outcome(outcome: RunOutcome, *, resume: str, json: bool) -> None:
    """Prints the outcome for a person, or as one JSON line."""
    if json:
        json_line("done", **outcome_json(outcome))
        return
    stdout.print(table(_LEDGER_COLUMNS, [_ledger_row(ledger) for ledger in outcome.reconciliation.ledgers]))
    _show_errors(outcome)
    _show_metrics(outcome)
    _show_curve(outcome)
    stdout.print(_VERDICTS[outcome.exit_code])
    if outcome.exit_code is ExitCode.TOO_MANY_ERRORS:
        stdout.say(_over_the_limit(outcome))
    for ledger in outcome.reconciliation.ledgers:
        _show_doubts(ledger)
    if outcome.exit_code is ExitCode.COMPLETE and not _worked(outcome):
        stdout.say("nothing was left to do: every row had its record already")
    for name, reason in outcome.reasons.items():
        stdout.print(f"[red]{name}:[/] ", end="")
        stdout.say(reason)
    for notice in sorted({text for ledger in outcome.reconciliation.ledgers for text in ledger.notices}):
        stdout.say(f"source: {notice}", style="red")
    if outcome.exit_code in (ExitCode.INCOMPLETE, ExitCode.INTERRUPTED):
        stdout.say(f"resume with: {resume}")
    if outcome.audit is not None:
        _show_audit(outcome.audit, outcome.unaudited)
    stdout.say(f"results: {outcome.run.results.location}")
    if outcome.report is not None:
        stdout.say(f"report:  {outcome.report}")


def _show_audit(audit: Standing, unaudited: list[str]) -> None:
    stdout.say(f"audit of {audit.checkpoint}: {audit.sentence}", style="green" if audit.exit_code == 0 else "yellow")
    if unaudited:
        stdout.say(f"not audited: {', '.join(unaudited)}")


def _show_doubts(ledger: Ledger) -> None:
    """Records that are there, and yet say less than they seem to."""
    if ledger.unsound:
        stdout.say(
            f"{ledger.checkpoint}: {ledger.unsound:,} records have neither an answer nor an error, or both, so "
            f"somebody has changed them: {', '.join(ledger.unsound_parts)}",
            style="red",
        )
    if ledger.unparsed:
        stdout.say(
            f"{ledger.checkpoint}: {ledger.unparsed:,} of {ledger.answered:,} answers could not be parsed and are not "
            "scored (the report shows them, the records have parse_error)",
            style="yellow",
        )
    if ledger.truncated:
        stdout.say(
            f"{ledger.checkpoint}: {ledger.truncated:,} of {ledger.answered:,} answers were cut off at "
            "sampling.max_tokens",
            style="yellow",
        )


def _worked(outcome: RunOutcome) -> bool:
    return any(entry.done > entry.before for entry in outcome.progress.checkpoints.values())


def outcome_json(outcome: RunOutcome) -> dict[str, object]:
    """The outcome as plain data."""
    return {
        "exit_code": int(outcome.exit_code),
        "verdict": outcome.exit_code.name.lower(),
        "reconciliation": outcome.reconciliation.to_json(),
        "metrics": outcome.summaries,
        "reasons": outcome.reasons,
        "progress": status_json(outcome.progress, outcome.exit_code.name.lower())["checkpoints"],
        "run_dir": outcome.run.location,
        "report": outcome.report,
        "audit": None if outcome.audit is None else _audit_json(outcome.audit, outcome.unaudited),
    }


def _audit_json(audit: Standing, unaudited: list[str]) -> dict[str, object]:
    return {**msgspec.to_builtins(audit), "not_audited": unaudited}


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


def _over_the_limit(outcome: RunOutcome) -> str:
    spec = outcome.run.spec()
    limit = spec.limits.max_error_rate if spec else 0.0
    over = [x for x in outcome.reconciliation.ledgers if x.error_rate > limit]
    rates = ", ".join(f"{x.error_rate:.3g} of {x.checkpoint}" for x in over)
    return f"share of rows with an error: {rates}; limits.max_error_rate is {limit:g}"


def _show_metrics(outcome: RunOutcome) -> None:
    """Metrics as rows and checkpoints as columns; many checkpoints become rows and show their headline only."""
    summaries = outcome.summaries
    if len(summaries) > _SIDE_BY_SIDE:
        rows = [(name, s.headline, _cell(s, s.headline)) for name, s in summaries.items()]
        stdout.print(table(["checkpoint", "metric", _CELL], rows))
        return
    names = {metric.name: metric.unit for summary in summaries.values() for metric in summary.metrics}
    if not names:
        return
    narrow = stdout.width < 24 + 28 * len(summaries)
    cell = _short_cell if narrow else _cell
    heading = "value (intervals and rows covered: in the report, or on a wider terminal)" if narrow else _CELL
    stdout.print(
        table(
            ["metric", *summaries],
            [
                (f"{name}, {unit}" if unit else name, *(cell(summary, name) for summary in summaries.values()))
                for name, unit in names.items()
            ],
            title=heading,
        )
    )


def _short_cell(summary: Summary, name: str) -> str:
    metric = next((m for m in summary.metrics if m.name == name), None)
    return "-" if metric is None or metric.value is None else f"{metric.value:.3f}"


def _cell(summary: Summary, name: str) -> str:
    metric = next((m for m in summary.metrics if m.name == name), None)
    if metric is None or metric.value is None:
        return "-" if metric is None else f"- (0 of {metric.of:,} rows)"
    interval = "" if metric.low is None or metric.high is None else f" ({metric.low:.3f}, {metric.high:.3f})"
    return f"{metric.value:.3f}{interval} {metric.n:,}"


def _show_curve(outcome: RunOutcome) -> None:
    """The headline of each checkpoint as a bar, in their order."""
    headlines = {name: s.headline for name, s in outcome.summaries.items() if s.headline}
    values = {
        name: metric.value
        for name, headline in headlines.items()
        for metric in outcome.summaries[name].metrics
        if metric.name == headline and metric.value is not None and not metric.unit
    }
    if len(values) < 2:
        return
    stdout.print(f"[bold]{next(iter(headlines.values()))}[/]")
    width = max(map(len, values))
    for name, value in values.items():
        stdout.print(f"  {name:<{width}}  {'█' * round(_BAR * value):<{_BAR}} {value:6.1%}", markup=False)
    stdout.print()
