"""``proctor trace diff``: what changed from one trace to another, what that supports, and a gate for CI."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from proctor.cli.output import escaped, json_line, stderr
from proctor.cli.run import Json
from proctor.cli.trace.heading import opened
from proctor.rows import UserError

if TYPE_CHECKING:
    from proctor.trace.diff import Checked, Diff

GATE_FAILED = 5
NOT_JUDGED = 3
_FIELDS_IN_LINES = ("changes", "board")


Before = Annotated[Path, typer.Argument(metavar="A", help="The trace before.")]
After = Annotated[Path, typer.Argument(metavar="B", help="The trace after.")]
Per = Annotated[
    str | None,
    typer.Option("--per", metavar="RANGE", help="The NVTX range that marks an iteration: figures per iteration."),
]
FailIf = Annotated[
    list[str] | None,
    typer.Option("--fail-if", metavar="CONDITION", help="Exit with 5 if it holds; may be repeated. See below."),
]
AsCaptured = Annotated[
    bool, typer.Option("--as-captured", help="Judge conditions on whole windows, whatever amount of work they hold.")
]
Why = Annotated[bool, typer.Option("--why", help="Say why hypotheses are ruled out, and list all clues.")]
Rules = Annotated[
    Path | None, typer.Option("--rules", metavar="TOML", help="Rules for the line-up, before the built-in ones.")
]
Limit = Annotated[int, typer.Option("--limit", min=1, help="How many rows of a table to show.")]
Force = Annotated[bool, typer.Option("--force", help="Give figures although the comparison is refused.")]


def diff(
    a: Before,
    b: After,
    per: Per = None,
    fail_if: FailIf = None,
    as_captured: AsCaptured = False,
    why: Why = False,
    rules: Rules = None,
    limit: Limit = 8,
    force: Force = False,
    json: Json = False,
) -> None:
    """Show what changed from A to B, and what that supports and what it does not.

    First comes what the captures themselves allow one to conclude; then the hypotheses whose rule fits, with their
    clues; then figures: totals, and changes by kernel, which sum to the whole. Differences that repeated launches in
    one window show as well are noise.

    A CONDITION is METRIC OP [+|-]NUMBER[%|ns|us|ms|s] with OP one of > >= < <=. METRIC is total (time of kernels),
    work (with copies, memsets, graphs), busy, idle, window, copies, memsets, communication, exposed, syncs, api, calls,
    copy_calls, copied, kernel:"part of a name" or category:NAME. With a sign or % it is about the change from A, else
    about B's value: 'total > +5%', 'kernel:"flash" > +200us', 'exposed > 3ms', 'calls > +0'. With --per, figures are
    per iteration. Without it, a change cannot be judged where the windows hold, or may hold, different amounts of work;
    --as-captured judges it all the same. A change within noise does not fail, and is told.

    Exit code: 0 all passes, 5 a condition holds, 3 none holds and one cannot be judged, 1 a mistake in the input, or
    the traces cannot be compared (without --force).
    """
    from proctor.trace.diff import METRICS, check, read_gate

    gates = [read_gate(text, METRICS) for text in fail_if or []]
    found = _compared((a, b), per, rules, force=force, notes=not json)
    each = per is not None and not as_captured
    checked = [check(gate, found, each=each, as_captured=as_captured) for gate in gates if found.totals]
    if json:
        _lines(found, checked)
    else:
        from proctor.cli.trace.diff_tables import show
        from proctor.cli.trace.diff_verdict import show_checked

        show(found, limit, why=why)
        show_checked(checked)
    if not found.totals:
        reasons = "; ".join(found.comparability.reasons)
        raise UserError(f"the traces cannot be compared: {reasons}", fix="--force gives figures")
    raise typer.Exit(_code(checked, json=json))


def _compared(files: tuple[Path, Path], per: str | None, rules: Path | None, *, force: bool, notes: bool) -> Diff:
    from proctor.trace.diff import diff as compare
    from proctor.trace.names import line_up

    places = line_up(rules)
    with ExitStack() as stack:
        one, two = (stack.enter_context(opened(file, notes=notes)) for file in files)
        return compare(one, two, per=per, places=places, force=force)


def _code(checked: list[Checked], *, json: bool) -> int:
    """The exit code; what did not pass is told on stderr."""
    code = 0
    for outcome, its in (("cannot be judged", NOT_JUDGED), ("failed", GATE_FAILED)):
        those = [each.gate for each in checked if each.outcome == outcome]
        if those:
            code = its
            if not json:
                stderr.print(f"[bold red]{outcome}:[/] {escaped('; '.join(those))}", soft_wrap=True)
    return code


def _lines(found: Diff, checked: list[Checked]) -> None:
    """A line for each change, clue, hypothesis and condition; at last all the rest."""
    whole = msgspec.to_builtins(found)
    for name, rows in (
        ("change", whole["changes"]),
        ("clue", whole["board"]["clues"]),
        ("hypothesis", whole["board"]["hypotheses"]),
        ("condition", msgspec.to_builtins(checked)),
    ):
        for row in rows:
            json_line(name, **row)
    json_line("diff", **{key: value for key, value in whole.items() if key not in _FIELDS_IN_LINES})
