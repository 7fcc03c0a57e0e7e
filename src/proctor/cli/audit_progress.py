"""How an audit looks while it is under way: a bar on a terminal, a line a sitting elsewhere, JSON for machines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from proctor.cli.output import duration, json_line, stderr, visible

if TYPE_CHECKING:
    from proctor.audit.lab import Progress as Observer
    from proctor.audit.model import Sitting


@contextmanager
def display(*, json: bool) -> Iterator[Observer]:
    """Gives an observer of sittings that shows them in the way that fits; people are told on stderr."""
    if json:
        yield _as_json
    elif stderr.is_terminal:
        with _bar() as bar:
            task = bar.add_task("starting the engine", total=None)

            def advance(sitting: Sitting, done: int, planned: int) -> None:
                bar.update(task, completed=done, total=planned, description=visible(_named(sitting)))

            yield advance
    else:
        yield _Lines()


class _Lines:
    """A line for each sitting, with the time since the beginning."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, sitting: Sitting, done: int, planned: int) -> None:
        stderr.say(f"{duration(time.monotonic() - self._began)}  {done} of {planned}  {_named(sitting)}")


def _bar() -> Progress:
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=stderr, transient=True)


def _named(sitting: Sitting) -> str:
    return f"{sitting.arm}, round {sitting.round + 1}"


def _as_json(sitting: Sitting, done: int, planned: int) -> None:
    json_line("sitting", arm=sitting.arm, round=sitting.round, done=done, of=planned)
