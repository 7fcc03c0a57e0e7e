"""How a run looks while it is under way: a live panel on a terminal, plain lines elsewhere, JSON for machines."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from proctor.cli.output import duration, json_line, stdout, table, visible
from proctor.runner.snapshot import Observer, Progress, status_json
from proctor.runner.status import RunStatus

_LINE_SECONDS = 10.0
"""Seconds between two plain lines."""
_ENGINE_EVENTS = {"engine.crashed": "crashes", "engine.stalled": "stalls", "engine.restarted": "restarts"}


@contextmanager
def display(*, json: bool) -> Iterator[Observer]:
    """Gives an observer that shows a run in the way that fits where the output goes."""
    if json:
        yield Paced(1.0, lambda progress: json_line("progress", **status_json(progress, "running")))
    elif not stdout.is_terminal:
        yield Paced(_LINE_SECONDS, lambda progress: stdout.say(line(progress)))
    else:
        with Live(console=stdout, auto_refresh=False, transient=True) as live:
            yield lambda progress: live.update(panel(progress), refresh=True)


class Paced:
    """An observer that speaks at a bounded rate."""

    def __init__(self, seconds: float, speak: Observer) -> None:
        self._seconds, self._speak, self._next = seconds, speak, 0.0

    def __call__(self, progress: Progress) -> None:
        """Passes a snapshot on if the last one is long enough ago."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._seconds
            self._speak(progress)


def line(progress: Progress) -> str:
    """A snapshot in one line."""
    done = sum(entry.done for entry in progress.checkpoints.values())
    total = sum(entry.total for entry in progress.checkpoints.values())
    where = f"{progress.active[0]} sweep {progress.active[1]}" if progress.active else progress.note or "between sweeps"
    return (
        f"{duration(progress.seconds)}  {where}: {done:,} of {total:,} rows, {progress.rate:.0f} rows/s, "
        f"{duration(progress.eta_seconds)} left; {_faults(progress)}"
    )


def panel(progress: Progress) -> RenderableType:
    """A snapshot as a live panel."""
    grid = Table.grid(padding=(0, 2))
    for _ in range(5):
        grid.add_column()
    for name, entry in progress.checkpoints.items():
        active = progress.active is not None and progress.active[0] == name
        grid.add_row(
            f"[bold]{name}[/]" if active else name,
            ProgressBar(total=max(entry.total, 1), completed=entry.done, width=30),
            f"{entry.done:,} / {entry.total:,}",
            f"[red]{entry.errors.total():,} errors[/]" if entry.errors else "",
            f"sweep {progress.active[1]}" if active and progress.active else "",
        )
    rate = f"{progress.rate:.0f} rows/s   {duration(progress.eta_seconds)} left   {duration(progress.seconds)} so far"
    note = [Text(visible(progress.note))] if progress.note else []
    return Group(grid, *note, rate, _faults(progress))


def _faults(progress: Progress) -> str:
    kinds: Counter[str] = sum((entry.errors + entry.retries for entry in progress.checkpoints.values()), Counter())
    engine = {word: progress.events.get(kind, 0) for kind, word in _ENGINE_EVENTS.items()}
    errors = ", ".join(f"{kind} {count:,}" for kind, count in sorted(kinds.items())) or "no errors"
    return f"{errors}; engines: " + ", ".join(f"{count} {word}" for word, count in engine.items())


def status_table(status: RunStatus) -> Table:
    """The rows done of each checkpoint, as the files say."""
    rows = [(name, done, status.total, status.total - done, status.errors[name]) for name, done in status.done.items()]
    return table(["checkpoint", "done", "expected", "left", "errors among them"], rows)
