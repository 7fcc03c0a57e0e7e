"""How a bench of compilation looks while it is under way: a line that changes, lines elsewhere, JSON for machines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from proctor.cli.output import duration, json_line, stderr, visible

if TYPE_CHECKING:
    from proctor.compile.bench import Advance, Progress


@contextmanager
def display(*, json: bool) -> Iterator[Progress]:
    """Gives what is to be told of every step, and shows it in the way that fits; people are told on stderr."""
    if json:
        yield _as_json
    elif stderr.is_terminal:
        with stderr.status("preparing rows") as line:
            yield lambda step: line.update(visible(_said(step)))
    else:
        began = time.monotonic()
        yield lambda step: stderr.say(f"{duration(time.monotonic() - began)}  {_said(step)}")


def _said(step: Advance) -> str:
    whose = f"process {step.process + 1} of {step.processes}: " if step.processes > 1 else ""
    return f"{whose}{step.doing}"


def _as_json(step: Advance) -> None:
    json_line("compile_step", process=step.process, of=step.processes, doing=step.doing)
