"""``proctor demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proctor.cli.output import escaped, stdout
from proctor.cli.run import Json, killed


def demo(
    rows: Annotated[int, typer.Option("--rows", min=1, help="Scenes to draw.")] = 2000,
    out: Annotated[Path, typer.Option("--out", help="Directory for data, models and the run.")] = Path("demo-run"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Put an earlier demo run aside and start anew.")] = False,
    json: Json = False,
) -> None:
    """Draw scenes and evaluate four checkpoints of a tiny model over them, with faults planted on the way."""
    from proctor.api import run
    from proctor.cli.outcome import show_outcome
    from proctor.cli.panel import display
    from proctor.demo.exhibit import planted, prepare_demo
    from proctor.runner.last_words import last_words

    if not json:
        stdout.print(
            f"drawing {rows:,} driving scenes and unpacking four checkpoints into {escaped(str(out))}", soft_wrap=True
        )
    spec, spec_file = prepare_demo(out, rows)
    if not json:
        for line in planted(spec, rows):
            stdout.say(f"planted: {line}")
    resume = f"proctor run {spec_file}"
    with last_words(killed(resume)), display(json=json) as observer:
        outcome = run(spec, fresh=fresh, observer=observer)
    show_outcome(outcome, resume=resume, json=json)
    raise typer.Exit(int(outcome.exit_code))
