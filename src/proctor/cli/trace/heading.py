"""How every verb opens a trace, and the lines that say what was opened."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proctor.cli.output import counted, escaped, stderr, stdout

if TYPE_CHECKING:
    from proctor.trace import Trace
    from proctor.trace.model import Gpu, Note

TraceFile = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="A .sqlite, an .nsys-rep, or a .json[.gz] of the PyTorch profiler."),
]

_COLOURS = {"info": "dim", "warning": "yellow", "error": "bold red"}
_NAMES_SHOWN = 8


@contextmanager
def opened(file: Path, *, notes: bool = True) -> Iterator[Trace]:
    """Opens a trace for one command and closes it; warnings and errors among its notes go to stderr first.

    Args:
        file: what the user named.
        notes: False for a command that shows the notes itself.
    """
    from proctor.trace import open_trace
    from proctor.trace.trace import explained

    with open_trace(file) as trace:
        if notes:
            warn(trace)
        try:
            yield trace
        except sqlite3.DatabaseError as error:
            raise explained(error, trace.path, trace.guard) from error


def warn(trace: Trace) -> None:
    """Prints the trace's warnings and errors to stderr, one line each."""
    for note in trace.notes:
        if note.severity != "info":
            _say(note, where=trace.path.name)


def show_notes(trace: Trace) -> None:
    """Prints every note of the trace to stdout, with what it means and what to do."""
    for note in trace.notes:
        stdout.print(f"[{_COLOURS[note.severity]}]{note.severity}[/]: {escaped(_text(note))}", soft_wrap=True)


def show_head(trace: Trace) -> None:
    """Prints what was opened: file, tool and schema, GPUs, processes with work on a GPU, and the window."""
    schema = f", schema {trace.schema}" if trace.schema else ""
    stdout.say(f"{trace.path}: {trace.tool or trace.origin}{schema}")
    stdout.say(f"GPUs: {', '.join(gpu_lines(trace.gpus)) or 'none'}")
    stdout.say(f"processes: {_some([f'{p.pid} {p.name}'.strip() for p in trace.processes]) or 'none named'}")
    start, end = trace.window
    stdout.say(f"window: {(end - start) / 1e9:,.6f} s, from {start / 1e9:,.6f} s; CUDA graphs: {trace.graph_mode}")


def head_of(trace: Trace) -> dict[str, Any]:
    """What `show_head` and `show_notes` say, for JSON."""
    return {
        "file": str(trace.path),
        "origin": trace.origin,
        "tool": trace.tool,
        "schema": str(trace.schema) if trace.schema else None,
        "gpus": trace.gpus,
        "processes": [process._asdict() for process in trace.processes],
        "window": {"start_ns": trace.window[0], "end_ns": trace.window[1]},
        "graph_mode": trace.graph_mode,
        "notes": trace.notes,
    }


def gpu_lines(gpus: Iterable[Gpu]) -> list[str]:
    """``2 x NVIDIA H100 80GB HBM3 (132 SMs)``: the physical GPUs as far as they can be told apart."""
    kinds: dict[str, set[object]] = {}
    for gpu in gpus:
        sms = f" ({gpu.sm_count} SMs)" if gpu.sm_count else ""
        text = f"{gpu.name or 'a GPU that the trace does not describe'}{sms}"
        kinds.setdefault(text, set()).add(gpu.uuid or gpu.device)
    return [text if len(which) == 1 else f"{len(which)} x {text}" for text, which in kinds.items()]


def _say(note: Note, *, where: str) -> None:
    colour = _COLOURS[note.severity]
    stderr.print(f"[{colour}]{note.severity}[/]: {escaped(f'{where}: {_text(note)}')}", soft_wrap=True)


def _text(note: Note) -> str:
    advice = f" ({note.advice})" if note.advice else ""
    return f"{note.what}: {note.meaning}{advice}"


def _some(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {counted(more, 'other')}" if more > 0 else "")
