"""How a run goes, for Prometheus: which metrics there are, where they are written, and when."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from proctor.rows import Event
from proctor.runner.exam import Exam
from proctor.runner.outcome import RunOutcome
from proctor.runner.prometheus import Exporter, Series, Values, served
from proctor.runner.snapshot import Observer, Progress
from proctor.storage.folder import LocalFolder

FILE = "metrics.prom"
RUNNING = "running"
_FILE_SECONDS = 10.0
"""Seconds between two writings of the file: as often as Prometheus asks."""


def series_of(progress: Progress, state: str) -> Iterator[Series]:
    """The metrics of a run. Counters count from the start of this driver, as Prometheus expects of them; gauges also
    hold what earlier drivers of the run have done."""
    runs = progress.checkpoints.items()
    yield Series("proctor_rows_expected", "Rows to answer.", ["checkpoint"], {(n,): x.total for n, x in runs})
    yield Series("proctor_rows_done", "Rows with a final record.", ["checkpoint"], {(n,): x.done for n, x in runs})
    yield Series(
        "proctor_rows_total",
        "Rows that came back since the driver began, by outcome: answered, or the error kind.",
        ["checkpoint", "outcome"],
        {
            (name, outcome): count
            for name, entry in runs
            for outcome, count in {"answered": entry.answered, **entry.errors}.items()
        },
    )
    yield Series(
        "proctor_rows_retried_total",
        "Rows that came back without a final record since the driver began, by error kind.",
        ["checkpoint", "kind"],
        {(name, kind): count for name, entry in runs for kind, count in entry.retries.items()},
    )
    tokens: Values = {(name,): entry.output_tokens for name, entry in runs}
    yield Series("proctor_output_tokens_total", "Tokens of answers since the driver began.", ["checkpoint"], tokens)
    yield Series("proctor_rate", "Rows a second, over the last half minute.", [], {(): progress.rate})
    yield Series("proctor_seconds", "Seconds since the driver began.", [], {(): progress.seconds})
    if progress.eta_seconds is not None:
        yield Series("proctor_eta_seconds", "Seconds until every row is done.", [], {(): progress.eta_seconds})
    events: Values = {(kind,): count for kind, count in progress.events.items()}
    yield Series("proctor_events_total", "Events since the driver began, by kind.", ["kind"], events)
    restarts = progress.events.get("engine.restarted", 0)
    yield Series("proctor_engine_restarts_total", "Engines started again after a failure.", [], {(): restarts})
    yield Series("proctor_run_state", "1 for the state of the run.", ["state"], {(state,): 1})


class Exported:
    """The metrics of a run, if its spec asks for them.

    Args:
        exam: the run.

    Raises:
        UserError: the library is not installed.
    """

    def __init__(self, exam: Exam) -> None:
        self._exam, self._spec = exam, exam.spec.metrics
        self._progress, self._state = Progress({}), RUNNING
        self._next_file = 0.0
        self._held = True
        name = exam.run.location.rstrip("/").rpartition("/")[2]
        self._exporter = None if self._spec is None else Exporter(self._collect, {"run": name})

    @contextmanager
    def exporting(self) -> Iterator[None]:
        """Serves and writes the metrics while the block runs. The file then stays, with the state of the end."""
        if self._exporter is None or self._spec is None:
            yield
            return
        if trouble := served(self._exporter, self._spec.port):
            with suppress(OSError):
                self._exam.run.append_event(Event("metrics.failed", message=trouble))
        try:
            yield
        finally:
            self._exporter.close()
            self._write()

    def beside(self, observer: Observer) -> Observer:
        """An observer that exports what there is to see, and then tells `observer`."""

        def observe(progress: Progress) -> None:
            self._progress = progress
            if time.monotonic() >= self._next_file:
                self._next_file = time.monotonic() + _FILE_SECONDS
                self._write()
            observer(progress)

        return observe

    def or_lose(self, lose: Callable[[str], None]) -> Callable[[str], None]:
        """What is done when the run directory is another driver's: nothing more is written there; and `lose`."""

        def lose_both(reason: str) -> None:
            self._held = False
            lose(reason)

        return lose_both

    def ended(self, outcome: RunOutcome) -> RunOutcome:
        """Takes note of how the run ended. Returns `outcome`."""
        self._progress, self._state = outcome.progress, outcome.exit_code.name.lower()
        return outcome

    def _collect(self) -> Iterator[Series]:
        return series_of(self._progress, self._state)

    def _write(self) -> None:
        """Writes the file, where Prometheus's node exporter can read it: on a local disk."""
        folder = self._exam.run.folder
        if self._exporter is not None and self._held and isinstance(folder, LocalFolder):
            with suppress(OSError):  # a full disk is told by those whose files matter
                folder.write(FILE, self._exporter.text())
