"""``proctor trace FILE``: one screen that says what is slow, whether the GPU is idle, what is risky, what next."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from proctor.cli.output import counted, escaped, json_line, stdout, table
from proctor.cli.run import Json
from proctor.cli.trace.heading import TraceFile, head_of, opened, show_head

if TYPE_CHECKING:
    from proctor.trace import Trace
    from proctor.trace.summary.summary import Summary

_NOTES, _DEVICES, _CATEGORIES, _KERNELS, _RISKS, _STEPS = 3, 4, 6, 6, 3, 5
_NAME, _LEAST_NAME = 46, 20
_OTHER_COLUMNS = 66
_NO_KERNELS = 1
_COLOURS = {"info": "dim", "warning": "yellow", "error": "bold red"}


def summary(file: TraceFile, json: Json = False) -> None:
    """Show on one screen what is slow, whether the GPU is idle, what is risky, and what to look at next.

    Exit code 1 if the trace has no kernels: what there is to say of it is shown all the same.
    """
    from proctor.trace.summary.summary import kept_summary

    with opened(file, notes=False) as trace:
        found = kept_summary(trace)
        if json:
            whole = msgspec.to_builtins(found)
            whole["next"] = [{"command": step.command(file), "why": step.why} for step in found.next]
            json_line("summary", **head_of(trace), **whole)
        else:
            show_head(trace)
            _show_notes(trace)
            _show(found, file)
    if not found.calls:
        raise typer.Exit(_NO_KERNELS)


def _show_notes(trace: Trace) -> None:
    notes = [note for note in trace.notes if note.severity != "info"]
    for note in notes[:_NOTES]:
        stdout.print(f"[{_COLOURS[note.severity]}]{note.severity}[/]: {escaped(note.what)}", soft_wrap=True)
    if len(trace.notes) > len(notes[:_NOTES]):
        more = counted(len(trace.notes) - len(notes[:_NOTES]), "more note" if notes else "note")
        stdout.say(f"{more}: {shlex.join(['proctor', 'trace', 'notes', str(trace.path)])}", style="dim")


def _show(found: Summary, file: Path) -> None:
    if found.calls:
        _show_times(found)
        _show_work(found)
        _show_risks(found, file)
    for step in found.next[:_STEPS]:
        command = step.command(file)
        stdout.print("[bold]next:[/] ", end="")
        stdout.say(f"{command}  # {step.why}" if command else step.why)


def _show_times(found: Summary) -> None:
    copies = f"{found.copies:,} {'copy' if found.copies == 1 else 'copies'}"
    moved = f"{_ms(found.copy_time)}, {found.copied / 1e6:,.1f} MB"
    stdout.say(f"{counted(found.calls, 'kernel')}, {_ms(found.total)} in sum; {copies}, {moved}")
    for device in found.devices[:_DEVICES]:
        stdout.say(
            f"GPU {device.device} (process {', '.join(map(str, device.pids))}): busy {1 - device.share:.1%}, "
            f"idle {_ms(device.idle)} in {counted(device.gaps, 'gap')}"
        )
    if len(found.devices) > _DEVICES:
        stdout.say(f"and {counted(len(found.devices) - _DEVICES, 'more GPU')}")
    if found.no_times:
        stdout.say(f"busy and idle: {found.no_times}", style="yellow")
    if found.gap is not None:
        gap = found.gap
        stdout.say(
            f"idle, mostly: {gap.cause}, {_ms(gap.length)} in {counted(gap.gaps, 'gap')} "
            f"of {_ms(gap.ranked)} looked into; the longest {_ms(gap.longest)}"
        )
    if found.communication is not None and found.communication.total:
        talk = found.communication
        stdout.say(
            f"communication: {_ms(talk.total)}, {talk.share:.1%} of busy time; "
            f"{talk.exposed / talk.total:.0%} of it exposed (no other kernel ran on that GPU)"
        )


def _show_work(found: Summary) -> None:
    named = [f"{each.name} {each.share:.1%}" for each in found.categories[:_CATEGORIES]]
    more = len(found.categories) - len(named)
    stdout.say(f"kinds of work: {', '.join(named)}" + (f" and {counted(more, 'other')}" if more > 0 else ""))
    from proctor.trace.names import short_name

    width = max(_LEAST_NAME, min(_NAME, stdout.width - _OTHER_COLUMNS))
    rows = [
        (
            short_name(each.name, width),
            f"{each.total / 1e6:,.3f}",
            f"{each.share:.1%}",
            each.calls,
            f"{each.mean / 1e3:,.1f}",
            f"{each.run_to_run} / {each.batch_invariant}",
        )
        for each in found.kernels[:_KERNELS]
    ]
    columns = ["kernel", "ms", "share", "calls", "us each", "same bits"]
    stdout.print(table(columns, rows))
    stdout.say("same bits: on another run / in any batch, as far as names tell")


def _show_risks(found: Summary, file: Path) -> None:
    from proctor.trace.names import short_name

    for finding in found.antipatterns[:_RISKS]:
        stdout.say(f"risk, transfers: {finding.name} (evidence: {_command('overlap', file)})")
    for risk in found.risks[:_RISKS]:
        stdout.say(
            f"risk, {risk.question} ({risk.answer}): {counted(risk.kernels, 'kernel')}, {risk.share:.1%} of kernel "
            f"time, above all {short_name(risk.dearest, 32)}"
        )
    if found.risks:
        stdout.say(f"why each of these kernels is a risk: {_command('risks', file)}")


def _command(verb: str, file: Path) -> str:
    return shlex.join(["proctor", "trace", verb, str(file)])


def _ms(ns: float) -> str:
    return f"{ns / 1e6:,.3f} ms"
