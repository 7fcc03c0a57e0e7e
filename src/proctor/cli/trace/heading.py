"""How every verb opens a trace, and the lines that say what was opened."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proctor.cli.output import counted, escaped, stderr, stdout
from proctor.trace.model import GraphMode, Severity

if TYPE_CHECKING:
    from proctor.trace import Trace
    from proctor.trace.model import Gpu, Note

TraceFile = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="A .sqlite, an .nsys-rep, or a .json[.gz] of the PyTorch profiler."),
]

_COLOURS = {"info": "dim", "warning": "yellow", "error": "bold red"}
_NAMES_SHOWN = 8
_UNDESCRIBED = "that the trace does not describe"
_GRAPHS = {
    GraphMode.GRAPH: "recorded as a whole, without their kernels",
    GraphMode.NODE: "recorded kernel by kernel",
}


@contextmanager
def opened(file: Path, *, notes: bool = True) -> Iterator[Trace]:
    """Opens a trace for one command and closes it.

    Warnings among its notes go to stderr first. Errors among them do last, and only if the command could do without
    what they are about: otherwise its own message has said so.

    Args:
        file: what the user named.
        notes: False for a command that shows the notes itself.
    """
    from proctor.trace import open_trace
    from proctor.trace.reading.misplaced import misplaced
    from proctor.trace.trace import explained

    with open_trace(file) as trace:
        if notes:
            warn(trace, Severity.WARNING)
        try:
            yield trace
            if notes:
                warn(trace, Severity.ERROR)
        except sqlite3.DatabaseError as error:
            raise explained(error, trace.path, trace.guard) from error
        except (TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise misplaced(trace) or error from error


def warn(trace: Trace, severity: Severity) -> None:
    """Prints the trace's notes of this severity to stderr, one line each."""
    for note in trace.notes:
        if note.severity is severity:
            _say(note, where=trace.path.name)


def show_notes(trace: Trace) -> None:
    """Prints every note of the trace to stdout, with what it means and what to do."""
    for note in trace.notes:
        stdout.print(f"[{_COLOURS[note.severity]}]{note.severity}[/]: {escaped(_text(note))}", soft_wrap=True)


def show_head(trace: Trace) -> None:
    """Prints what was opened: file, tool and schema, GPUs, processes with work on a GPU, the window, and the clock."""
    from proctor.trace.timeline.timeline import origin

    schema = f", schema {trace.schema}" if trace.schema else ""
    stdout.say(f"{trace.path}: {trace.tool or trace.origin}{schema}")
    stdout.say(f"GPUs: {', '.join(gpu_lines(trace.gpus)) or 'none'}")
    stdout.say(f"processes: {_some([f'{p.pid} {p.name}'.strip() for p in trace.processes]) or 'none named'}")
    start, end = trace.window
    zero = origin(trace)
    stdout.say(
        f"window: {(start - zero) / 1e6:,.3f} to {(end - zero) / 1e6:,.3f} ms after the first event, which is at "
        f"{zero:,} ns of the trace's clock"
    )
    if trace.graph_mode in _GRAPHS:
        stdout.say(f"CUDA graphs, if any: {_GRAPHS[trace.graph_mode]}")


def head_of(trace: Trace) -> dict[str, Any]:
    """What `show_head` and `show_notes` say, for JSON."""
    from proctor.trace.timeline.timeline import origin

    return {
        "file": str(trace.path),
        "origin": trace.origin,
        "tool": trace.tool,
        "schema": str(trace.schema) if trace.schema else None,
        "gpus": trace.gpus,
        "processes": [process._asdict() for process in trace.processes],
        "window": {"start_ns": trace.window[0], "end_ns": trace.window[1], "origin_ns": origin(trace)},
        "graph_mode": trace.graph_mode,
        "notes": trace.notes,
    }


def gpu_lines(gpus: Iterable[Gpu]) -> list[str]:
    """``2 x NVIDIA H100 80GB HBM3 (132 SMs)``: the physical GPUs as far as they can be told apart.

    Those that the trace does not describe come as ``2 that the trace does not describe``.
    """
    kinds: dict[str, set[object]] = {}
    for gpu in gpus:
        sms = f" ({gpu.sm_count} SMs)" if gpu.sm_count else ""
        text = f"{gpu.name}{sms}" if gpu.name else f"{_UNDESCRIBED}{sms}"
        kinds.setdefault(text, set()).add(gpu.uuid or gpu.device)
    return [
        f"{len(which)} {text}"
        if text.startswith(_UNDESCRIBED)
        else text
        if len(which) == 1
        else f"{len(which)} x {text}"
        for text, which in kinds.items()
    ]


def _say(note: Note, *, where: str) -> None:
    colour = _COLOURS[note.severity]
    stderr.print(f"[{colour}]{note.severity}[/]: {escaped(f'{where}: {_text(note)}')}", soft_wrap=True)


def _text(note: Note) -> str:
    advice = f" ({note.advice})" if note.advice else ""
    return f"{note.what}: {note.meaning}{advice}"


def _some(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {counted(more, 'other')}" if more > 0 else "")
