"""``proctor compile``: was compiling the vision encoder worth it, here, on this workload?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proctor.cli.compile_verdict import MOST_ROWS, add_verdict
from proctor.cli.output import escaped, json_line, stderr, stdout
from proctor.cli.run import Json, Set, SpecFile
from proctor.rows import UserError
from proctor.runner.interrupts import interruptible

if TYPE_CHECKING:
    from proctor.compile.collected import Collected

_INTERRUPTED = 130
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--targets",
        "--target",
        metavar="NAME",
        help="A target by name, or a pattern of module names. May be given several times.",
    ),
]
CheckpointName = Annotated[str | None, typer.Option("--checkpoint", help="Which one. Default: the first.")]
Rounds = Annotated[int, typer.Option("--rounds", min=1, help="Rounds that count, in each process.")]
WarmUps = Annotated[int, typer.Option("--warm-ups", min=1, help="Rounds before those.")]
Processes = Annotated[
    int, typer.Option("--processes", min=1, help="The first finds an empty cache, the others what it left there.")
]
MostProcesses = Annotated[
    int | None,
    typer.Option("--most-processes", min=1, help="Up to so many for what is open then. Default: twice as many."),
]
PlannedRows = Annotated[
    int | None,
    typer.Option("--rows", min=1, max=MOST_ROWS, help="Rows of the planned run. Default: those of the source."),
]
SampleRows = Annotated[int, typer.Option("--sample", min=1, help="Rows of the source that are looked at.")]
AnswersEvery = Annotated[
    int, typer.Option("--answers", min=0, help="Time whole answers in every so many rounds; 0: never.")
]
Backend = Annotated[str | None, typer.Option("--backend", help="Of the compiler. Default: the spec's, else inductor.")]
Agreement = Annotated[
    bool, typer.Option("--agreement/--no-agreement", help="Compare outputs. Nothing is kept unless they agree.")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Where to write. Default: compile/ in the run directory."),
]

app = typer.Typer(help="Was compiling the vision encoder worth it, here, on this workload?", no_args_is_help=True)


@app.command("bench")
def bench(
    spec: SpecFile,
    set_: Set = None,
    targets: Targets = None,
    rounds: Rounds = 10,
    warmups: WarmUps = 2,
    processes: Processes = 3,
    most: MostProcesses = None,
    rows: PlannedRows = None,
    sample: SampleRows = 64,
    answers: AnswersEvery = 2,
    backend: Backend = None,
    agreement: Agreement = True,
    checkpoint: CheckpointName = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Measure the encoder of a spec's engine, eager against compiled, on rows of its source, and say what to do.

    Exit code: 0 compile something, 4 compile nothing, 3 could not tell, 1 a mistake in the input, 130 interrupted: what
    was measured until then is kept.
    """
    from proctor.cli.compile_places import place_for
    from proctor.cli.compile_progress import display
    from proctor.compile.bench import Options, measure
    from proctor.compile.collected import Collected
    from proctor.spec import load_spec, warnings_of

    with interruptible():
        loaded = load_spec(spec, set_ or [])
        for warning in warnings_of(loaded):
            stderr.print(f"[yellow]warning:[/] {escaped(warning)}", soft_wrap=True)
        place = place_for(loaded, out)
        options = Options(
            targets=tuple(targets or ()),
            backend=backend,
            rounds=rounds,
            warmups=warmups,
            processes=processes,
            most=2 * processes if most is None else most,
            rows=rows,
            sample=sample,
            answers=answers,
            agreement=agreement,
        )
        collected, interrupted = Collected(), False
        try:
            with display(json=json) as progress:
                measure(loaded, options, progress, checkpoint=checkpoint, collected=collected)
        except KeyboardInterrupt:
            interrupted = True
    _finish(collected, place, interrupted=interrupted, json=json)


def _finish(collected: Collected, place: Path, *, interrupted: bool, json: bool) -> None:
    """Writes and tells what was measured, and ends the command."""
    from proctor.cli.compile_verdict import tell
    from proctor.compile.store import BENCH, page_of, write_bench
    from proctor.compile.verdict import verdict

    if interrupted and not collected.anything:
        stderr.print("interrupted: nothing was measured, nothing is written")
        raise typer.Exit(_INTERRUPTED)
    if interrupted:
        collected.note(["interrupted: the figures are those measured until then"])
    measured, unwritten = collected.measured(), None
    try:
        write_bench(place / BENCH, measured, verdict(measured))
    except UserError as error:  # what took minutes is told all the same
        unwritten = error
    if not json and unwritten is None:
        stdout.say(f"bench: {place / BENCH}")
    try:
        tell(measured, page_of(place) if unwritten is None else None, json=json)
    except typer.Exit as end:
        if unwritten is not None:
            raise unwritten from None
        raise typer.Exit(_INTERRUPTED if interrupted else end.exit_code) from None


@app.command("explain")
def explain(
    spec: SpecFile, set_: Set = None, targets: Targets = None, checkpoint: CheckpointName = None, json: Json = False
) -> None:
    """Show where the graphs of each target break, and of the whole encoder. Nothing is timed, no code is generated.

    Exit code: 0 every target is one graph, 4 some break or cannot be traced, 1 a mistake in the input, 130 interrupted.
    """
    from proctor.cli.compile_explained import show_explained
    from proctor.cli.compile_progress import display
    from proctor.compile.bench import explain as explain_spec
    from proctor.spec import load_spec

    with interruptible(), display(json=json) as progress:
        loaded = load_spec(spec, set_ or [])
        found = explain_spec(loaded, tuple(targets or ()), progress, checkpoint=checkpoint)
    if json:
        json_line("compile_explain", modules=found)
    else:
        show_explained(found)
    broken = [one for one in found if one.target and (one.breaks or one.failed)]
    raise typer.Exit(4 if broken else 0)


add_verdict(app)
