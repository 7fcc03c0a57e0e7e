"""What is said of graphs and their breaks."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.cli.output import counted, stdout, table
from proctor.compile.orders import Explained


def show_explained(found: Sequence[Explained]) -> None:
    """A line for each kind of module, and its breaks below."""
    lines = [
        (one.target or "whole encoder", one.module, one.like, one.graphs, len(one.breaks) if not one.failed else "-")
        for one in found
    ]
    stdout.print(table(["target", "module", "alike", "graphs", "breaks"], lines))
    for one in found:
        if one.breaks or one.failed:
            stdout.say(f"{one.module}: {counted(len(one.breaks), 'break')}", style="bold")
        for line in one.breaks or ([one.failed] if one.failed else []):
            stdout.say(f"  {line}")
