"""What a run's experiment trackers are told, and when: on the driver, and never so that anybody waits for them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from proctor.doctor.versions import versions
from proctor.rows import Event
from proctor.runner.exam import Exam
from proctor.runner.outcome import ExitCode, RunOutcome
from proctor.runner.snapshot import CheckpointProgress, Observer, Progress
from proctor.spec import masked
from proctor.trackers import Trackers, check_trackers

Values = dict[str, float | int | str | bool | None]
_NOT_PARAMS = ("trackers", "run_dir")


class Tracked:
    """The trackers of a run. Made before the run begins; tells nothing until it is opened.

    Args:
        exam: the run.

    Raises:
        UserError: a tracker of the spec cannot be opened at all.
    """

    def __init__(self, exam: Exam) -> None:
        self._exam = exam
        self._lost = False
        self._outcome: RunOutcome | None = None
        self._trackers: Trackers | None = None
        check_trackers(exam.spec.trackers, exam.run.folder)

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Tells the trackers while the block runs, which has the run directory for its own; then closes every one of
        them within its time. Whoever interrupts the wait for them ends only that."""
        if self._exam.spec.trackers:
            run = self._exam.run
            self._trackers = Trackers(self._exam.spec.trackers, run.folder, run.append_event, lambda: not self._lost)
            self._trackers.params(parameters(self._exam))
        try:
            yield
        finally:
            with suppress(KeyboardInterrupt):
                self._close()

    def beside(self, observer: Observer) -> Observer:
        """An observer that tells the trackers, and then `observer`."""

        def observe(progress: Progress) -> None:
            if self._trackers is not None:
                self._trackers.log(_step(progress), progress_values(progress))
            observer(progress)

        return observe

    def or_lose(self, lose: Callable[[str], None]) -> Callable[[str], None]:
        """What is done when the run directory is another driver's: nothing more is written there; and `lose`."""

        def lose_both(reason: str) -> None:
            self._lost = True
            lose(reason)

        return lose_both

    def ended(self, outcome: RunOutcome) -> RunOutcome:
        """Takes note of how the run ended. Returns `outcome`."""
        self._outcome = outcome
        return outcome

    def _close(self) -> None:
        if self._trackers is None:
            return
        began, outcome = time.monotonic(), self._outcome
        ok = outcome is not None and outcome.exit_code is ExitCode.COMPLETE
        if outcome is not None:
            step = _step(outcome.progress)
            self._trackers.log(step, progress_values(outcome.progress), always=True)
            self._trackers.summary(step, outcome_values(outcome))
        trackers, self._trackers = self._trackers, None
        closed = trackers.close(ok=ok)
        if closed and not self._lost:
            self._tell_end(time.monotonic() - began, Counter(state.complete for state in closed))

    def _tell_end(self, seconds: float, complete: Counter[bool]) -> None:
        text = f"{complete[True]} of {complete.total()} trackers have everything"
        try:
            self._exam.run.append_event(Event("trackers.closed", duration=round(seconds, 3), message=text))
        except OSError:
            return  # the events are out of reach, which is no reason to fail


def parameters(exam: Exam) -> Values:
    """The spec, secrets masked, by dotted key, and the versions of what computes the answers."""
    spec = {key: value for key, value in exam.spec.model_dump(mode="json").items() if key not in _NOT_PARAMS}
    found = dict(_flat("", masked(spec)))
    found |= {f"version.{name}": version for name, version in versions().items()}
    return {
        **found,
        "source.fingerprint": exam.source.fingerprint(),
        "source.rows": exam.source_rows,
        "rows": len(exam.expected),
    }


def progress_values(progress: Progress) -> Values:
    """How the run goes, in numbers: of all checkpoints, and of each."""
    entries = progress.checkpoints.values()
    values: Values = {
        "rows.done": sum(entry.done for entry in entries),
        "rows.total": sum(entry.total for entry in entries),
        "rows.per_second": progress.rate,
        "seconds": progress.seconds,
        "seconds.left": progress.eta_seconds,
    }
    for name, entry in progress.checkpoints.items():
        values |= _checkpoint_values(name, entry)
    return values


def _checkpoint_values(name: str, entry: CheckpointProgress) -> Values:
    return {
        f"{name}/rows.done": entry.done,
        f"{name}/rows.answered": entry.answered,
        f"{name}/output_tokens": entry.output_tokens,
        **{f"{name}/errors.{kind}": count for kind, count in entry.errors.items()},
        **{f"{name}/retries.{kind}": count for kind, count in entry.retries.items()},
    }


def outcome_values(outcome: RunOutcome) -> Values:
    """How the run ended: the verdict, each checkpoint's account, and its metrics with their intervals."""
    values: Values = {"verdict": outcome.exit_code.name.lower(), "exit_code": int(outcome.exit_code)}
    for ledger in outcome.reconciliation.ledgers:
        name = ledger.checkpoint
        account = {
            "complete": ledger.complete,
            "expected": ledger.expected,
            "answered": ledger.answered,
            "error_rate": ledger.error_rate,
            "unanswered": sum(ledger.unanswered.values()),
            "missing": ledger.missing,
            "duplicate": ledger.duplicate,
            "unparsed": ledger.unparsed,
            **{f"errors.{kind}": count for kind, count in ledger.errors.items()},
        }
        values |= {f"{name}/ledger.{key}": value for key, value in account.items()}
    for name, summary in outcome.summaries.items():
        for metric in summary.metrics:
            key = f"{name}/{metric.name}"
            values |= {key: metric.value, f"{key}.low": metric.low, f"{key}.high": metric.high}
            values |= {f"{key}.n": metric.n, f"{key}.of": metric.of}
    values |= {f"reason.{name}": reason for name, reason in outcome.reasons.items()}
    return values


def _step(progress: Progress) -> int:
    return sum(entry.done for entry in progress.checkpoints.values())


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, float | int | str | bool | None]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), inner)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _flat(f"{prefix}.{i}", inner)
    else:
        yield prefix, value
