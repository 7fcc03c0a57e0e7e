"""``proctor doctor``: what this machine has, what is missing, and what mends it."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proctor.cli.output import counted, escaped, json_line, stdout
from proctor.cli.run import Json, Set
from proctor.spec import load_spec
from proctor.spec.load import read_keys

if TYPE_CHECKING:
    from proctor.doctor.findings import Finding

_STYLES = {"ok": "green", "absent": "dim", "warning": "yellow", "missing": "bold red"}
_WIDTH = 16


def doctor(
    spec: Annotated[
        Path | None,
        typer.Argument(metavar="[SPEC]", help="YAML file of a run or a fleet: what that needs is looked at, too."),
    ] = None,
    set_: Set = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", metavar="ADDRESS", help="A Ray cluster: its nodes' address, `auto`, or http://HOST:8265."
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, max=600, help="Most seconds for each check; all are done at once.")
    ] = 8.0,
    json: Json = False,
) -> None:
    """Look at versions, GPUs, memory, disks, Ray, engines and storage, and say what mends what is missing.

    Starts no Ray, loads no model, writes nothing.

    Exit code: 0 nothing that is needed is missing, 1 something is, or a mistake in the input.
    """
    found = _examined(spec, set_ or [], cluster, seconds)
    counts = Counter(finding.level for finding in found)
    if json:
        for finding in found:
            json_line("finding", **asdict(finding))
        json_line("doctor", missing=counts["missing"], warnings=counts["warning"])
    else:
        _show(found)
        missing, warnings = counted(counts["missing"], "thing"), counted(counts["warning"], "warning")
        stdout.print(f"{'nothing' if not counts['missing'] else missing} missing, {warnings}")
    raise typer.Exit(1 if counts["missing"] else 0)


def _examined(spec: Path | None, overrides: list[str], cluster: str | None, seconds: float) -> list[Finding]:
    from proctor.doctor.examination import examination

    if spec is not None and "fleet_dir" in read_keys(spec)[0]:
        from proctor.fleet.examined import fleet_examination
        from proctor.fleet.loading import load_fleet

        return fleet_examination(load_fleet(spec, overrides), cluster, seconds)
    return examination(None if spec is None else load_spec(spec, overrides), cluster, seconds)


def _show(found: list[Finding]) -> None:
    topic = ""
    for finding in found:
        if finding.topic != topic:
            topic = finding.topic
            stdout.print(f"[bold]{escaped(topic)}[/]")
        mark = f"[{_STYLES[finding.level]}]{finding.level:<8}[/]"
        stdout.print(f"  {escaped(finding.name):<{_WIDTH}} {mark} {escaped(finding.what)}", soft_wrap=True)
        if finding.fix:
            stdout.print(f"  {'':<{_WIDTH}} [cyan]mend:[/] {escaped(finding.fix)}", soft_wrap=True)
