"""``proctor audit``: which knob changes the answers of an engine. ``proctor audit SPEC`` alone runs an audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from proctor.cli.audit_attention import attention, cascade_gate
from proctor.cli.output import escaped, json_line, stderr, stdout
from proctor.cli.run import Json, Set, SpecFile
from proctor.cli.verbs import by_default
from proctor.rows import UserError
from proctor.runner.interrupts import interruptible

if TYPE_CHECKING:
    from proctor.audit.conduct import Audit
    from proctor.spec import RunSpec

_INTERRUPTED = 130
AuditPlace = Annotated[
    str, typer.Argument(metavar="DIR", help="Directory or URL of an audit, or of a run that holds one.")
]

app = typer.Typer(
    cls=by_default("run"),
    help="Does the same question get the same answer, and if not, which knob changed it?",
    no_args_is_help=True,
)


@app.command("run")
def run(
    spec: SpecFile,
    set_: Set = None,
    checkpoint: Annotated[str | None, typer.Option("--checkpoint", help="Which one. Default: the first.")] = None,
    out: Annotated[
        str | None, typer.Option("--out", metavar="DIR", help="Where to write. Default: audit/ in the run directory.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the whole design and what it takes, and start nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Audit the engine of a run's spec: ask a sample of its rows in many ways, and find what changes the answers.

    Exit code: 0 no effect found, 4 an effect found, 3 could not tell, 1 a mistake in the input, 130 interrupted.
    """
    from proctor.audit.places import place_for
    from proctor.audit.standing import audited_checkpoint, conduct_audit
    from proctor.cli.audit_progress import display
    from proctor.spec import load_spec, warnings_of
    from proctor.view.audit import write_audit_page

    with interruptible():
        loaded = load_spec(spec, set_ or [])
        name = audited_checkpoint(loaded, checkpoint).name
        if dry_run:
            _show_design(loaded, name, out, json=json)
            return
        for warning in warnings_of(loaded):
            stderr.print(f"[yellow]warning:[/] {escaped(warning)}", soft_wrap=True)
        place = place_for(loaded, out)
        try:
            with display(json=json) as progress:
                audit = conduct_audit(loaded, name, place, progress)
        except KeyboardInterrupt:
            stderr.print("interrupted: nothing is written")
            raise typer.Exit(_INTERRUPTED) from None
        page = write_audit_page(place)
    _show(audit, str(place), page, json=json)
    raise typer.Exit(audit.exit_code)


@app.command("show")
def show(place: AuditPlace, json: Json = False) -> None:
    """Show a stored audit again, and write its page anew."""
    from proctor.audit.places import audit_folder, local_audit
    from proctor.audit.store import read_audit
    from proctor.view.audit import write_audit_page

    folder = audit_folder(place)
    audit = read_audit(local_audit(folder))
    _show(audit, folder.location, write_audit_page(folder), json=json)


@app.command("diff")
def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help="The earlier audit, or a run that holds one.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The later one.")],
    json: Json = False,
) -> None:
    """Compare two audits: an upgrade of the engine, another GPU. Both must have asked the same questions.

    Exit code: 0 the same, 4 different, 3 could not tell (neither agrees with itself), 1 not comparable.
    """
    from proctor.audit.diff import diff_audits
    from proctor.audit.places import audit_folder, local_audit
    from proctor.cli.audit_diff import diff_json, show_diff

    found = diff_audits(local_audit(audit_folder(old)), local_audit(audit_folder(new)))
    if json:
        json_line("audit_diff", **diff_json(found))
    else:
        show_diff(found)
    raise typer.Exit(found.exit_code)


app.command("attention")(attention)
app.command("cascade-gate")(cascade_gate)


def _show_design(spec: RunSpec, checkpoint: str, out: str | None, *, json: bool) -> None:
    from proctor.audit.conduct import Auditor
    from proctor.audit.places import check_writable, place_for
    from proctor.cli.audit_text import design_json, earlier, show_design

    before = earlier(spec, out)
    try:
        check_writable(place_for(spec, out))
    except UserError as mistake:  # the design stands, and may be made for another machine
        stderr.print(f"[yellow]warning:[/] it would be refused here: {escaped(str(mistake))}", soft_wrap=True)
    preparation = Auditor(spec, checkpoint).preparation()
    if json:
        json_line("audit_design", **design_json(preparation, before))
    else:
        show_design(preparation, before)


def _show(audit: Audit, place: str, page: str, *, json: bool) -> None:
    from proctor.cli.audit_text import audit_json, show_audit

    if json:
        json_line("audit", **audit_json(audit), directory=place, page=page)
        return
    show_audit(audit)
    stdout.say(f"audit: {place}")
    stdout.say(f"page:  {page}")
