"""A diff for people: what it says first, then the totals, the changes and where they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from proctor.cli.output import counted, stdout, table
from proctor.cli.trace.diff_verdict import show_board, show_check
from proctor.cli.trace.diff_words import change as changed
from proctor.cli.trace.diff_words import fitted, say, size, value, width

if TYPE_CHECKING:
    from proctor.trace.diff import Diff
    from proctor.trace.diff.changes import Change, Group
    from proctor.trace.diff.totals import Total

_COLUMNS = ("calls\nA", "calls\nB", "mean us\nA", "mean us\nB", "shapes", "change\nms")
_PARTS = ("repeats\nms", "launches\nms", "per launch\nms")
_NARROWEST = 24
"""A kernel's name gets no less; a terminal too narrow for it does without some columns."""
_WIDE = 125
"""In fewer columns, tables of totals and of places leave some of theirs out."""
_TINY = 0.001
"""Totals of time below this share of the window are left out of the table."""
_SHOWN_GROUPS = 3
_SHOWN_COPIES = 3
_SHOWN_CONFIGS = 5
_GROUP_NAME = 66


def show(found: Diff, limit: int, *, why: bool = False) -> None:
    """Prints the diff."""
    stdout.say(f"A: {found.a}")
    stdout.say(f"B: {found.b}")
    show_check(found)
    if not found.totals:
        return
    if found.unchanged:
        same = found.comparability.level == "same content"
        stdout.print(f"[bold green]no change[/]{': both files have the same content' if same else ''}")
        return
    stdout.print()
    show_board(found, why=why)
    _show_totals(found)
    _show_changes(found, limit)
    _show_copies(found)
    _show_groups(found, limit)


def _show_totals(found: Diff) -> None:
    window = next((total for total in found.totals if total.name == "window"), None)
    least = _TINY * max((window.a or 0.0, window.b or 0.0) if window else (0.0,))
    shown = [total for total in found.totals if _matters(total, least)]
    columns = ["window as captured", "A", "B", "change", "%"]
    if found.iterations:
        columns += ["A each", "B each", "% each"]
    kept = range(len(columns)) if width() >= _WIDE else [at for at in (0, 1, 2, 4, 7) if at < len(columns)]
    rows = [_total_row(t, each=found.iterations is not None) for t in shown]
    stdout.print(table([columns[at] for at in kept], [[row[at] for at in kept] for row in rows]))
    if found.iterations:
        it = found.iterations
        edge = f"; a change of up to {it.edge:.1%} may be the edges' doing" if it.edge else ""
        say(f"each: per repetition of one rank, of which all ranks together hold {it.a:,} and {it.b:,}{edge}")
    left = [total.name for total in found.totals if total not in shown and not total.why]
    if left:
        say(f"left out for being the same, or under 0.1 % of the window: {', '.join(left)}", style="dim")
    for why in dict.fromkeys(total.why for total in found.totals if total.why):
        say(f"not known: {', '.join(total.name for total in found.totals if total.why == why)}: {why}")


def _matters(total: Total, least: float) -> bool:
    """Whether a row says something: not what is unknown, next to nothing, or a number of GPUs that stayed."""
    if total.a is None or total.b is None:
        return False
    if total.unit == "ns":
        return max(total.a, total.b) >= max(least, 1)
    return total.name != "devices" or total.a != total.b


def _total_row(total: Total, *, each: bool) -> tuple[object, ...]:
    a, b, unit = total.a, total.b, total.unit
    row = (total.name, value(a, unit), value(b, unit), value(total.delta, unit, "+"), changed(a, b))
    if not each:
        return row
    return (*row, value(total.a_each, unit), value(total.b_each, unit), changed(total.a_each, total.b_each))


def _show_changes(found: Diff, limit: int) -> None:
    shown = found.changes[:limit]
    cells = [_cells(change) for change in shown]
    columns, cells = _fitting(cells)
    room = max(_NARROWEST, width() - _taken(columns, cells))
    rows = [(_name(change, room), *row) for change, row in zip(shown, cells, strict=True)]
    made = table(["what ran", *columns], rows)
    for row, change in zip(made.rows, shown, strict=True):
        row.style = "dim" if change.verdict == "within noise" and not change.split.calls else None
    stdout.print(made)
    rest = found.changes[limit:]
    more = f"{counted(len(rest), 'more row')}: {_ms(sum(c.delta_ns for c in rest))} ms (--limit). " if rest else ""
    parts = found.split
    say(
        f"{more}All rows sum to {_ms(parts.total)} ms: {_ms(parts.iterations)} from repetitions, {_ms(parts.calls)} "
        f"from launches, {_ms(parts.per_call)} from time per launch."
    )
    if found.edges_ns:
        say(
            f"Of the part from launches, {_ms(found.edges_ns)} ms are of work whose counts follow the repetitions but "
            "for what the edges of the windows cut: more launches and another cut cannot be told apart."
        )
    configs = [change for change in shown if change.config]
    for change in configs[:_SHOWN_CONFIGS]:
        say(f"{fitted(change.name, 40)}: {'; '.join(change.config)}", indent=2)
    if any(shapes > 1 for change in shown for shapes in _shapes(change)):
        say("shapes: grids and blocks of a kernel; its mean is of a mix, its verdict compares launches of one shape")


def _name(change: Change, room: int) -> str:
    if change.kind == "kernel":
        return fitted(change.name, room)
    return change.name if len(change.name) <= room else change.name[: room - 1] + "…"


def _ms(ns: float) -> str:
    return f"{ns / 1e6:+,.3f}"


def _shapes(change: Change) -> tuple[int, ...]:
    return tuple(tally.shapes for tally in (change.a, change.b) if tally is not None)


def _cells(change: Change) -> tuple[str, ...]:
    """A row but for its name."""
    verdict = f"{change.verdict}, other shapes" if change.shapes_changed else str(change.verdict)
    if change.verdict == "one side only":
        verdict = "new in B" if change.a is None else "gone from B"
    sides = (change.a, change.b)
    shapes = tuple(dict.fromkeys(_shapes(change))) if change.kind == "kernel" else ()
    return (
        *("-" if tally is None else f"{tally.calls:,}" for tally in sides),
        *("-" if tally is None else f"{tally.mean_ns / 1e3:,.1f}" for tally in sides),
        " / ".join(f"{count:,}" for count in shapes) or "-",
        *(_ms(part) for part in (change.delta_ns, *change.split)),
        verdict,
    )


def _fitting(cells: Sequence[tuple[str, ...]]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Columns and cells that leave room for a name: without the parts of the change, or more, where they would not."""
    every = [*_COLUMNS, *_PARTS, "verdict"]
    for kept in (range(len(every)), (0, 1, 2, 3, 4, 5, -1), (0, 1, 5, -1)):
        columns, rows = [every[at] for at in kept], [tuple(row[at] for at in kept) for row in cells]
        if width() - _taken(columns, rows) >= _NARROWEST:
            break
    return columns, rows


def _taken(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    """Width of the columns, three spaces between any two, and one at either edge."""
    heads = [max(map(len, column.split("\n"))) for column in columns]
    longest = [max([head, *(len(row[at]) for row in cells)]) for at, head in enumerate(heads)]
    return sum(longest) + 3 * len(columns) + 2


def _show_copies(found: Diff) -> None:
    copies = [change for change in found.changes if change.kind == "copy"]
    copies.sort(key=lambda c: -max(tally.bytes for tally in (c.a, c.b) if tally is not None))
    for copy in copies[:_SHOWN_COPIES]:
        a, b = (
            "none" if tally is None else f"{size(tally.bytes)} at {_rate(tally.bytes_per_second)}"
            for tally in (copy.a, copy.b)
        )
        say(f"{copy.name}: {a} -> {b}", indent=2)


def _rate(bytes_per_second: float | None) -> str:
    return "an unknown rate" if bytes_per_second is None else f"{size(bytes_per_second)}/s"


def _show_groups(found: Diff, limit: int) -> None:
    """Where the change is, by several ways to look at it, in one table."""
    rows: list[tuple[object, ...]] = []
    for title, groups in (
        ("category", found.categories),
        ("NVTX range", found.ranges),
        ("sync", found.syncs),
        ("API call", found.calls),
    ):
        rows += [(title if not at else "", *_group_row(group)) for at, group in enumerate(_few(groups, limit))]
    columns = ["", "where", "count\nA", "count\nB", "ms\nA", "ms\nB", "change\nms"]
    kept = range(len(columns)) if width() >= _WIDE else (0, 1, 4, 5, 6)
    if rows:
        stdout.print(table([columns[at] for at in kept], [[row[at] for at in kept] for row in rows]))


def _few(groups: Iterable[Group], limit: int) -> list[Group]:
    found = [group for group in groups if group.delta_ns or group.a_calls != group.b_calls]
    return found[: min(limit, _SHOWN_GROUPS)]


def _group_row(group: Group) -> tuple[object, ...]:
    """An NVTX path is cut at its start: the innermost range tells most."""
    room = _GROUP_NAME if width() >= _WIDE else max(_NARROWEST, width() - 54)
    name = group.name if len(group.name) <= room else "…" + group.name[1 - room :]
    times = (f"{group.a_ns / 1e6:,.3f}", f"{group.b_ns / 1e6:,.3f}", _ms(group.delta_ns))
    return name, group.a_calls, group.b_calls, *times
