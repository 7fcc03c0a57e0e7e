"""How a run closes: tombstones, reconciliation, metrics, exit code."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

import duckdb

from proctor.audit.standing import Standing, read_standing
from proctor.results import Reconciliation, RunDir, reconcile, settle, write_tombstones
from proctor.rows import Event, told
from proctor.runner.exam import Exam
from proctor.runner.progress import Tracker
from proctor.runner.snapshot import Progress, status_json
from proctor.tasks import Summary

_HASTY_SECONDS = 5.0


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
        held: whether this driver held the run directory to the end; if not, it has left everything there as it is.
        report: path or URL of the report, None when it was not (or could not be) written.
        audit: the verdict of the audit that the run carries, None without one. It has no part in the exit code.
    """

    run: RunDir
    exit_code: ExitCode
    reconciliation: Reconciliation
    summaries: dict[str, Summary]
    progress: Progress
    reasons: dict[str, str]
    held: bool = True
    report: str | None = None
    audit: Standing | None = None

    @property
    def unaudited(self) -> list[str]:
        """Checkpoints that the audit says nothing about; empty without an audit."""
        audited = None if self.audit is None else self.audit.checkpoint
        return [name for name in self.progress.checkpoints if audited not in (None, name)]


def conclude(exam: Exam, tracker: Tracker, *, interrupted: bool) -> RunOutcome:
    """Reconciles every checkpoint from the files, adds up the metrics, and writes both down.

    A disk that takes no more costs what could not be written, and the exit code says so. A driver that has lost the run
    directory to another writes nothing.
    """
    run, closing = exam.run, _Closing(exam, tracker)
    written = [closing.tombstones(name) for name in tracker.checkpoints]
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
    written += [closing.document(name, document) for name, document in documents.items()]
    if account.complete and not all(written):
        code = ExitCode.MISTAKE
    held = tracker.lost is None
    reasons = dict(tracker.reasons)
    return RunOutcome(run, code, account, summaries, tracker.snapshot, reasons, held, audit=_audit(exam))


def _audit(exam: Exam) -> Standing | None:
    if exam.spec.audit is None:
        return None
    with contextlib.suppress(OSError):
        return read_standing(exam.run.folder)
    return None


class _Closing:
    """The last writing into a run directory. Once that has failed, the rest is tried without patience."""

    def __init__(self, exam: Exam, tracker: Tracker) -> None:
        self._exam, self._tracker, self._run = exam, tracker, exam.run

    def tombstones(self, checkpoint: str) -> bool:
        """Gives every row that is still unanswered a tombstone. Returns whether that could be written."""
        if self._tracker.lost is not None:
            return False
        settled = settle(self._run.results, checkpoint)
        self._tracker.settled(checkpoint, settled)
        for part in settled.set_aside:
            text = f"{part} is damaged, it is in aside/"
            self._tracker.reasons.setdefault(checkpoint, text)
            with contextlib.suppress(OSError):
                self._run.append_event(Event("part.set_aside", action="its rows are unanswered", message=text))
        missing = self._exam.expected - settled.done
        schema, sweep = self._exam.record_schema, self._tracker.sweeps[checkpoint]
        return not missing or self._attempt(
            f"tombstones of {checkpoint}",
            lambda run: write_tombstones(run.folder, checkpoint, missing, schema, sweep),
        )

    def document(self, name: str, value: dict[str, Any]) -> bool:
        """Writes a JSON file of the run. Returns whether that could be done."""
        return self._attempt(f"{name}.json", lambda run: run.write(name, value))

    def _attempt(self, what: str, write: Callable[[RunDir], None]) -> bool:
        if self._tracker.lost is not None:
            return False
        try:
            write(self._run)
        except OSError as error:
            self._tracker.reasons.setdefault("run", f"{what} not written: {error}")
            self._run = self._exam.run.hasty(_HASTY_SECONDS)
            return False
        return True


def _summaries(exam: Exam, tracker: Tracker) -> Iterator[tuple[str, Summary]]:
    """What each checkpoint scored; a user's own summary may raise anything, which costs the summary and not the run."""
    for name in tracker.checkpoints:
        try:
            yield name, summarise(exam, name)
        except (Exception, SystemExit) as error:
            tracker.reasons[name] = f"no metrics, the task's summary failed: {told(error)}"
            with contextlib.suppress(OSError):
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
