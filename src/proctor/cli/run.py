"""``proctor run`` and ``status``."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proctor.cli.output import counted, escaped, json_line, stderr, stdout
from proctor.runner.interrupts import interruptible
from proctor.spec import load_spec, warnings_of

if TYPE_CHECKING:
    from pyroaring import BitMap64

SpecFile = Annotated[Path, typer.Argument(metavar="SPEC", help="YAML file that describes the run.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key by its dotted path. May be given several times."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object a line, and nothing else, on stdout.")]
Only = Annotated[
    str | None,
    typer.Option(
        "--only",
        metavar="FILE",
        help="Run only the rows in this list: row ids, one a line; - is standard input. The run keeps to them.",
    ),
]
RunPath = Annotated[str, typer.Argument(metavar="RUN", help="Run directory: a path, or a URL such as s3://bucket/run.")]


def run(
    spec: SpecFile,
    set_: Set = None,
    only: Only = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Put an earlier run aside and start anew.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Run even if `proctor plan` says that it does not fit.")
    ] = False,
    json: Json = False,
) -> None:
    """Evaluate a model over a data set, or resume where an earlier run of the same spec stopped.

    Exit code: 0 complete, 2 complete but too many errors, 3 incomplete, 1 a mistake in the input, 130 interrupted.
    """
    with interruptible():
        loaded = load_spec(spec, set_ or [])
        for warning in warnings_of(loaded):
            stderr.print(f"[yellow]warning:[/] {escaped(warning)}", soft_wrap=True)
        rows = listed(only)
        from proctor.api import run as run_spec
        from proctor.cli.outcome import show_outcome
        from proctor.cli.panel import display
        from proctor.runner.last_words import last_words

        resume = _same_command(spec, set_ or [])
        with last_words(killed(resume)), display(json=json) as observer:
            outcome = run_spec(loaded, only=rows, fresh=fresh, force=force, observer=observer)
        show_outcome(outcome, resume=resume, json=json)
        raise typer.Exit(int(outcome.exit_code))


def listed(only: str | None) -> BitMap64 | None:
    """The rows of ``--only``, None without it. Ids that are there more than once are told of.

    Raises:
        UserError: it is no list of row ids.
    """
    if only is None:
        return None
    from proctor.runner.only import read_list

    rows, repeated = read_list(only)
    if repeated:
        text = f"--only: {counted(repeated, 'line')} with an id that an earlier one has; each row runs once"
        stderr.print(f"[yellow]warning:[/] {escaped(text)}", soft_wrap=True)
    return rows


def killed(resume: str) -> str:
    """What is said when the driver ends without a word of its own."""
    return (
        "error: the driver ended without a word: it was killed, or Ray's processes on this machine died under it; "
        f"what has a record is kept, go on with: {resume}"
    )


def _same_command(spec: Path, overrides: list[str]) -> str:
    """What resumes a run; without the overrides it would be another run."""
    return shlex.join(["proctor", "run", str(spec), *(part for text in overrides for part in ("--set", text))])


def status(run_dir: RunPath, json: Json = False) -> None:
    """Show how a run stands, from its directory alone: while it is live and after a crash."""
    from proctor.cli.panel import status_table
    from proctor.results import RunDir
    from proctor.runner.status import read_status

    found = read_status(RunDir.existing(run_dir))
    if json:
        json_line("status", **asdict(found))
        return
    word = f"{found.state} when it ended, not any more" if found.doubts else found.state
    stdout.print(f"[bold]{escaped(word)}[/]  {escaped(run_dir)}", soft_wrap=True)
    for doubt in found.doubts:
        stdout.say(f"{doubt} (`proctor run` with the same spec runs what is gone again)", style="red")
    stdout.print(status_table(found))
