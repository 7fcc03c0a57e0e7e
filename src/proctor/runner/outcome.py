"""How a run closes: tombstones, reconciliation, metrics, exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import IntEnum
from functools import partial
from pathlib import Path

import duckdb

from proctor.results import Reconciliation, RunDir, reconcile, settle, write_tombstones
from proctor.rows import Event, told
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
        exit_code: 0 complete, 1 complete but without metrics, 2 complete with too many errors, 3 incomplete,
            130 interrupted.
        summaries: what each checkpoint scored; one whose summary failed is not there.
        reasons: why sweeps ended early or there are no metrics, by checkpoint.
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
    """Reconciles every checkpoint from the files, adds up the metrics, and writes both down.

    A disk that takes no more costs what could not be written, and the exit code says so.
    """
    run = exam.run
    written = [_close_rows(exam, name, tracker) for name in tracker.checkpoints]
    account = Reconciliation(
        [reconcile(run.results, name, exam.expected, tracker.repaired[name]) for name in tracker.checkpoints]
    )
    summaries = dict(_summaries(exam, tracker))
    code = exit_code(account, exam.spec.limits.max_error_rate, interrupted=interrupted)
    if account.complete and len(summaries) < len(account.ledgers):
        code = ExitCode.MISTAKE
    documents = {
        "reconciliation": {**account.to_json(), "exit_code": int(code)},
        "metrics": {name: asdict(summary) for name, summary in summaries.items()},
        "versions": {**(run.read("versions") or {}), **engine_versions(run)},
        "status": status_json(tracker.snapshot, code.name.lower()),
    }
    for name, document in documents.items():
        written.append(_attempt(tracker, f"{name}.json", partial(run.write, name, document)))
    if account.complete and not all(written):
        code = ExitCode.MISTAKE
    return RunOutcome(run, code, account, summaries, tracker.snapshot, dict(tracker.reasons))


def _close_rows(exam: Exam, checkpoint: str, tracker: Tracker) -> bool:
    """Gives every row that is still unanswered a tombstone. Returns whether that could be written."""
    tracker.settled(checkpoint, settled := settle(exam.run.results, checkpoint))
    missing = exam.expected - settled.done
    write = partial(
        write_tombstones, exam.run.root, checkpoint, missing, exam.record_schema, tracker.sweeps[checkpoint]
    )
    return not missing or _attempt(tracker, f"tombstones of {checkpoint}", write)


def _attempt(tracker: Tracker, what: str, write: Callable[[], None]) -> bool:
    try:
        write()
    except OSError as error:
        tracker.reasons.setdefault("run", f"{what} not written: {error}")
        return False
    return True


def _summaries(exam: Exam, tracker: Tracker) -> Iterator[tuple[str, Summary]]:
    """What each checkpoint scored; a user's own summary may raise anything, which costs the summary and not the run."""
    for name in tracker.checkpoints:
        try:
            yield name, summarise(exam, name)
        except (Exception, SystemExit) as error:
            tracker.reasons[name] = f"no metrics, the task's summary failed: {told(error)}"
            exam.run.append_event(Event("summary.failed", message=f"{name}: {told(error)}"))


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
