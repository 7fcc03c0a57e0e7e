"""The ``proctor`` command: its verbs, and how a mistake is told."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import proctor
from proctor.cli import demo, mds, records, report, run
from proctor.cli.output import stderr
from proctor.rows import UserError

app = typer.Typer(
    name="proctor",
    help="Batch evaluation of vision-language models that accounts for every row.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run)
app.command("plan")(run.plan)
app.command("status")(run.status)
app.command("errors")(records.errors)
app.command("export")(records.export)
app.command("report")(report.report)
app.command("demo")(demo.demo)
app.add_typer(mds.app, name="mds")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"proctor {proctor.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Options of every command; `main` looks at ``--debug`` itself, so that it also covers mistakes in parsing."""


def main() -> None:
    """Runs the command line and ends the process with its exit code: 1 and one clear line for the user's mistakes."""
    debug = "--debug" in sys.argv[1:]
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        app(arguments)
    except UserError as error:
        if debug:
            raise
        stderr.print(f"[bold red]error:[/] {_plain(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        stderr.print("interrupted")
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)
    except Exception as error:
        if debug:
            raise
        stderr.print(f"[bold red]internal error:[/] {_plain(f'{type(error).__name__}: {error}')}", soft_wrap=True)
        stderr.print("this is a fault of Proctor; run again with --debug and report the traceback")
        sys.exit(1)


def _plain(text: str) -> str:
    return text.replace("[", r"\[")
