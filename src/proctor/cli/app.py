"""The ``proctor`` command: its verbs, and how a mistake is told."""

from __future__ import annotations

import errno
import sys
from typing import Annotated, cast

import typer

import proctor
from proctor.cli import audit, compare, curve, demo, doctor, gate, mds, plan, records, report, run, trace, tracker, view
from proctor.cli.compile import app as compile_app
from proctor.cli.fleet import app as fleet_app
from proctor.cli.output import escaped, stderr
from proctor.rows import UserError
from proctor.storage.base import StorageError

app = typer.Typer(
    name="proctor",
    help="Batch evaluation of vision-language models that accounts for every row.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run)
app.command("plan")(plan.plan)
app.command("status")(run.status)
app.command("errors")(records.errors)
app.command("export")(records.export)
app.command("report")(report.report)
app.command("view")(view.view)
app.command("compare")(compare.compare)
app.command("gate")(gate.gate)
app.command("curve")(curve.curve)
app.command("demo")(demo.demo)
app.command("doctor")(doctor.doctor)
app.add_typer(audit.app, name="audit")
app.add_typer(compile_app, name="compile")
app.add_typer(fleet_app, name="fleet")
app.add_typer(mds.app, name="mds")
app.add_typer(trace.app, name="trace")
app.add_typer(tracker.app, name="tracker")


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


_SURROUNDINGS = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ENAMETOOLONG),
        *(errno.EMFILE, errno.ENOTDIR, errno.EISDIR, errno.EEXIST),
    }
)
"""What goes wrong around Proctor, wherever it is met: the disk, permissions, limits."""
_INTERRUPTED = 130
_UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[1])
"""What typer raises for a command line that cannot be; typer itself does not export it."""


def main() -> None:
    """Runs the command line and ends the process with its exit code: 1 and a clear line for the user's mistakes.

    Mistakes on the command line itself end with 1, too: typer's own 2 would say "too many errors".
    """
    debug = "--debug" in sys.argv[1:]
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        sys.exit(app(arguments, standalone_mode=False))
    except _UsageError as error:
        error.show()
        sys.exit(1)
    except UserError as error:
        if debug:
            raise
        stderr.print(f"[bold red]error:[/] {escaped(str(error))}", soft_wrap=True)
        sys.exit(1)
    except (KeyboardInterrupt, typer.Abort):
        stderr.print("interrupted")
        sys.exit(_INTERRUPTED)
    except Exception as error:
        if debug:
            raise
        if isinstance(error, StorageError) or (isinstance(error, OSError) and error.errno in _SURROUNDINGS):
            stderr.print(f"[bold red]error:[/] {escaped(str(error))}", soft_wrap=True)
            sys.exit(1)
        stderr.print(f"[bold red]internal error:[/] {escaped(f'{type(error).__name__}: {error}')}", soft_wrap=True)
        stderr.print("this is a fault of Proctor; run again with --debug and report the traceback")
        sys.exit(1)
