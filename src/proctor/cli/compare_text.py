"""What is said of two sides beside each other."""

from __future__ import annotations

from proctor.cli.output import counted, escaped, stdout, table
from proctor.paired.model import ChangedRow, Comparison
from proctor.paired.words import interval_of, p_value, sentence, size_of, value_of

_COLOURS = {"better": "green", "worse": "bold red", "changed": "yellow", "no": "bold"}
_EXCERPT = 48
_FATES = 12


def show_comparison(found: Comparison) -> None:
    """The result first, then the account of the rows, the metrics, and the regressions."""
    change = found.change(found.headline)
    stdout.print(f"[{_COLOURS[change.moved] if change else 'bold'}]{escaped(sentence(found, change))}[/]")
    for remark in found.remarks:
        stdout.say(remark, style="yellow")
    stdout.print()
    _show_account(found)
    _show_changes(found)
    for added in found.added_up:
        values = " -> ".join("-" if value is None else f"{value:.4g}" for value in (added.a, added.b))
        stdout.say(f"{added.name}: {values} (the task adds it up itself: no rows to pair, no interval)")
    for text in found.spec_changes:
        stdout.say(f"the runs differ in {text}", style="yellow")
    _show_regressions(found)


def _show_account(found: Comparison) -> None:
    account = found.account
    rows = [(f"{line.a}", f"{line.b}", line.rows) for line in account.rows[:_FATES]]
    stdout.print(f"[bold]every row, paired by {found.paired_by}[/]")
    stdout.print(table([found.a, found.b, "rows"], rows))
    left = account.rows[_FATES:]
    if left:
        stdout.say(f"and {sum(line.rows for line in left):,} rows in {len(left)} more combinations (--json)")
    if account.nowhere:
        stdout.say(f"{counted(account.nowhere, 'expected row')} without a record on either side", style="yellow")
    for label, count in zip((found.a, found.b), account.duplicates, strict=True):
        if count:
            stdout.say(f"{label}: {counted(count, 'record')} left out whose row has one already", style="red")
    if account.other_targets:
        text = f"{counted(account.other_targets, 'row')} with another target: they were marked against other truths"
        stdout.say(text, style="red")
    lost, gained = account.count(a=True, b=False), account.count(a=False, b=True)
    if (lost or gained) and not found.strict:
        sides = f"{counted(lost, 'row')} of {found.a}, {gained:,} of {found.b}"
        left_out = "the metrics leave them out (--strict counts them as wrong)"
        stdout.say(f"scored on one side only: {sides}; {left_out}", style="yellow")


def _show_changes(found: Comparison) -> None:
    shown = [change for change in found.changes if change.n]
    units = "clusters" if any(change.clusters is not None for change in shown) else "rows"
    rows = [
        (
            change.measure.name + (f", {change.measure.unit}" if change.measure.unit else ""),
            value_of(change.a, change.measure),
            value_of(change.b, change.measure),
            "-" if change.difference is None else size_of(change.difference, change.measure).split(" ")[0],
            interval_of(change),
            "-" if change.worse is None else f"{change.worse:,}",
            "-" if change.better is None else f"{change.better:,}",
            "-" if change.p is None else p_value(change.p),
            "-" if change.detectable is None else size_of(change.detectable, change.measure, sign=False).split(" ")[0],
            change.n,
        )
        for change in shown
    ]
    columns = ["metric", "A", "B", "B - A", "95 % interval", f"{units} worse", "better", "p", "detectable", "n"]
    stdout.print(table(columns, rows, title="metrics over the rows that both sides have them for (shares in %)"))
    moved = [change for change in shown if change.moved != "no" and change.measure.name != found.headline]
    if moved:
        names = ", ".join(f"{change.measure.name} {change.moved}" for change in moved)
        about = f"of {len(shown)} metrics, one in 20 moves by chance"
        stdout.say(f"also moved: {names} ({about})")


def _show_regressions(found: Comparison) -> None:
    if not found.regressed:
        stdout.print("no row got worse")
        return
    rows = [_row(row) for row in found.regressions]
    if rows:
        what = "rows that got worse or lost their score, largest change first"
        stdout.print(f"[bold]{escaped(found.headline or 'answers')}: {what}[/]")
        stdout.print(table(["row", "sample", "change", "target", found.a, found.b], rows))
    left = found.regressed - len(rows)
    if left:
        stdout.say(f"and {counted(left, 'more row')} (--limit, --export)")


def _row(row: ChangedRow) -> tuple[object, ...]:
    return (
        str(row.row_a if row.row_a is not None else row.row_b),
        row.sample_id,
        "lost" if row.change is None else f"{row.change:+.4g}",
        _excerpt(row.target),
        _excerpt(row.answer_a) if row.answer_a is not None else f"({row.fate_a})",
        _excerpt(row.answer_b) if row.answer_b is not None else f"({row.fate_b})",
    )


def _excerpt(text: str | None) -> str:
    if text is None:
        return "-"
    line = " ".join(text[: 4 * _EXCERPT].split())
    return line if len(line) <= _EXCERPT else f"{line[: _EXCERPT - 1]}\u2026"
