"""How a run closes: reconciliation, metrics, exit code."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path

import duckdb

from proctor.results import Reconciliation, RunDir, reconcile
from proctor.runner.exam import Exam
from proctor.runner.progress import Progress, Tracker, status_json
from proctor.tasks import Summary


class ExitCode(IntEnum):
    """What the process says at its end."""

    COMPLETE = 0
    MISTAKE = 1
    TOO_MANY_ERRORS = 2
    INCOMPLETE = 3
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A run that has ended.

    Attributes:
        exit_code: 0 complete, 2 complete with too many errors, 3 incomplete, 130 interrupted.
        summaries: what each checkpoint scored.
        reasons: why engines were given up, by checkpoint.
        report: the report, None when it was not (or could not be) written.
    """

    run: RunDir
    exit_code: ExitCode
    reconciliation: Reconciliation
    summaries: dict[str, Summary]
    progress: Progress
    reasons: dict[str, str]
    report: Path | None = None


def conclude(exam: Exam, tracker: Tracker, *, interrupted: bool) -> RunOutcome:
    """Reconciles every checkpoint from the files, adds up the metrics, and writes both down."""
    run = exam.run
    account = Reconciliation(
        [reconcile(run.results, name, exam.expected, tracker.repaired[name]) for name in tracker.checkpoints]
    )
    summaries = {name: summarise(exam, name) for name in tracker.checkpoints}
    code = exit_code(account, exam.spec.limits.max_error_rate, interrupted=interrupted)
    run.write("reconciliation", {**account.to_json(), "exit_code": int(code)})
    run.write("metrics", {name: asdict(summary) for name, summary in summaries.items()})
    run.write("versions", {**(run.read("versions") or {}), **engine_versions(run)})
    run.write("status", status_json(tracker.snapshot, code.name.lower()))
    return RunOutcome(run, code, account, summaries, tracker.snapshot, dict(tracker.broken_reasons))


def engine_versions(run: RunDir) -> dict[str, str]:
    """Versions inside the engines' own processes, as they told them when they had loaded (``engine: torch`` ...)."""
    loaded = [event.data for event in run.events() if event.kind == "engine.loaded"]
    return {f"engine: {name}": v for data in loaded for name, v in data.items() if isinstance(v, str)}


def summarise(exam: Exam, checkpoint: str) -> Summary:
    """The task's summary over the records of `checkpoint` (none yet counts as zero rows)."""
    with duckdb.connect() as connection:
        connection.register("nothing", exam.record_schema.empty_table())
        try:
            records = exam.run.records(connection, checkpoint)
        except LookupError:
            records = connection.table("nothing")
        return exam.task.summary(records, len(exam.expected))


def exit_code(account: Reconciliation, max_error_rate: float, *, interrupted: bool) -> ExitCode:
    """The verdict on a run."""
    if account.complete:
        over = any(ledger.error_rate > max_error_rate for ledger in account.ledgers)
        return ExitCode.TOO_MANY_ERRORS if over else ExitCode.COMPLETE
    return ExitCode.INTERRUPTED if interrupted else ExitCode.INCOMPLETE
