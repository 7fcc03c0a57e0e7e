"""A diff for people: the check, the totals, the changes, the evidence, and what is ruled out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from proctor.cli.output import counted, escaped, stdout, table
from proctor.trace.names import short_name

if TYPE_CHECKING:
    from proctor.trace.diff import Diff
    from proctor.trace.diff.board import Hypothesis
    from proctor.trace.diff.changes import Change, Group, Tally
    from proctor.trace.diff.evidence import Clue
    from proctor.trace.diff.totals import Total

_LEVELS = {"same content": "green", "comparable": "green", "comparable with limits": "yellow", "refused": "bold red"}
_STATES = {"supported": "green", "contested": "yellow", "suggested": "yellow", "no evidence": "dim", "ruled out": "dim"}
_CHANGE_COLUMNS = (
    *("what ran", "calls A", "calls B", "us A", "us B"),
    *("change ms", "iterations", "calls", "per call", "verdict"),
)
_NAME = 40
_SHOWN_GROUPS = 5


def show(found: Diff, limit: int) -> None:
    """Prints the diff."""
    stdout.say(f"A: {found.a}")
    stdout.say(f"B: {found.b}")
    _show_check(found)
    if not found.totals:
        return
    if found.unchanged:
        same = found.comparability.level == "same content"
        stdout.print(f"[bold green]no change[/]{': both files have the same content' if same else ''}")
        return
    columns = ["window as captured", "A", "B", "change", "%"]
    if found.iterations:
        columns += ["A each", "B each", "% each"]
    stdout.print(table(columns, [_total_row(t, each=found.iterations is not None) for t in found.totals]))
    _show_changes(found, limit)
    _show_copies(found)
    for title, groups in (
        ("category", found.categories),
        ("NVTX ranges around the launch", found.ranges),
        ("synchronisation", found.syncs),
        ("API call", found.calls),
    ):
        _show_groups(title, groups, limit)
    _show_board(found, limit)


def _show_check(found: Diff) -> None:
    check = found.comparability
    stdout.print(f"[{_LEVELS[check.level]}]{check.level}[/]")
    for reason in check.reasons:
        stdout.say(f"  {reason}")
    for limit in check.limits:
        bars = f" (bars conclusions from {', '.join(limit.bars)})" if limit.bars else ""
        stdout.say(f"  {limit.what}: {limit.meaning}{bars}")
    same = [f"{fact.what}: {fact.a}" for fact in check.facts if fact.same]
    if same:
        stdout.say(f"  the same on both sides: {'; '.join(same)}", style="dim")
    if found.iterations and found.totals:
        it = found.iterations
        stdout.say(f"  'each' is per repetition: {it.a:,} in A, {it.b:,} in B, all ranks together: {it.what}")


def _total_row(total: Total, *, each: bool) -> tuple[object, ...]:
    row = (total.name, _value(total, total.a), _value(total, total.b), _change_of(total), _percent(total.a, total.b))
    if not each:
        return row
    return (*row, _value(total, total.a_each), _value(total, total.b_each), _percent(total.a_each, total.b_each))


def _value(total: Total, value: float | None, sign: str = "") -> str:
    if value is None:
        return "-"
    if total.unit == "ns":
        return f"{value / 1e6:{sign},.3f} ms"
    return f"{value:{sign},.0f}" if value == int(value) else f"{value:{sign},.1f}"


def _change_of(total: Total) -> str:
    return _value(total, total.delta, "+")


def _percent(a: float | None, b: float | None) -> str:
    return "-" if not a or b is None else f"{b / a - 1:+.1%}"


def _show_changes(found: Diff, limit: int) -> None:
    shown = found.changes[:limit]
    made = table(_CHANGE_COLUMNS, [_change_row(change) for change in shown])
    for row, change in zip(made.rows, shown, strict=True):
        row.style = "dim" if change.verdict == "within noise" and not change.split.calls else None
    stdout.print(made)
    rest = found.changes[limit:]
    if rest:
        together = sum(change.delta_ns for change in rest) / 1e6
        stdout.say(f"{counted(len(rest), 'more row')}: {together:+,.3f} ms; --limit shows them")
    parts = found.split
    stdout.say(
        f"all rows sum to {parts.total / 1e6:+,.3f} ms: {parts.iterations / 1e6:+,.3f} from iterations, "
        f"{parts.calls / 1e6:+,.3f} from calls, {parts.per_call / 1e6:+,.3f} from time per call (us A, us B: medians)"
    )
    for change in shown:
        if change.config:
            stdout.say(f"  {short_name(change.name, _NAME)}: {'; '.join(change.config)}")


def _change_row(change: Change) -> tuple[object, ...]:
    verdict = f"{change.verdict}, other shapes" if change.shapes_changed else str(change.verdict)
    if change.verdict == "one side only":
        verdict = "new in B" if change.a is None else "gone from B"
    return (
        short_name(change.name, _NAME) if change.kind == "kernel" else change.name[:_NAME],
        change.a.calls if change.a else None,
        change.b.calls if change.b else None,
        f"{change.a.median_ns / 1e3:,.1f}" if change.a else None,
        f"{change.b.median_ns / 1e3:,.1f}" if change.b else None,
        *(f"{value / 1e6:+,.3f}" for value in (change.delta_ns, *change.split)),
        verdict,
    )


def _show_copies(found: Diff) -> None:
    rows = [
        (
            change.name,
            change.a.bytes if change.a else None,
            change.b.bytes if change.b else None,
            _rate(change.a),
            _rate(change.b),
        )
        for change in found.changes
        if change.kind == "copy"
    ]
    if rows:
        stdout.print(table(["copies", "bytes A", "bytes B", "GB/s A", "GB/s B"], rows))


def _rate(tally: Tally | None) -> str | None:
    if tally is None or tally.bytes_per_second is None:
        return None
    return f"{tally.bytes_per_second / 1e9:,.3g}"


def _show_groups(title: str, groups: Iterable[Group], limit: int) -> None:
    changed = [group for group in groups if group.delta_ns or group.a_calls != group.b_calls]
    few = changed[: min(limit, _SHOWN_GROUPS)]
    if not few:
        return
    rows = [
        (
            group.name if len(group.name) <= 70 else "…" + group.name[-69:],
            group.a_calls,
            group.b_calls,
            f"{group.a_ns / 1e6:,.3f}",
            f"{group.b_ns / 1e6:,.3f}",
            f"{group.delta_ns / 1e6:+,.3f}",
        )
        for group in few
    ]
    stdout.print(table([title, "count A", "count B", "ms A", "ms B", "change ms"], rows))


def _show_board(found: Diff, limit: int) -> None:
    board = found.board
    if board.clues:
        rows = [_clue_row(clue) for clue in board.clues[:limit]]
        made = table(["clue", "A", "B", "ms", "share", "supports", "speaks against"], rows, title="evidence")
        for row, clue in zip(made.rows, board.clues, strict=False):
            row.style = "dim" if clue.noise else None
        stdout.print(made)
    clues = {clue.id: clue for clue in board.clues}
    for hypothesis in board.hypotheses:
        _show_hypothesis(hypothesis, clues)
    if not any(h.state in ("supported", "contested", "suggested") for h in board.hypotheses):
        stdout.say("no rule fits: the changes above have no explanation that these figures could show")
    stdout.say(
        "noise is judged within one window a side; how far two captures of the same program differ is not in it",
        style="dim",
    )


def _clue_row(clue: Clue) -> tuple[object, ...]:
    return (
        clue.what,
        clue.a,
        clue.b,
        None if clue.contribution_ns is None else f"{clue.contribution_ns / 1e6:+,.3f}",
        None if clue.share is None else f"{clue.share:+.0%}",
        ", ".join(clue.supports),
        ", ".join(clue.against),
    )


def _show_hypothesis(hypothesis: Hypothesis, clues: Mapping[str, Clue]) -> None:
    part = "" if hypothesis.contribution_ns is None else f" [{hypothesis.contribution_ns / 1e6:+,.3f} ms]"
    why = f": {hypothesis.why}" if hypothesis.why else ""
    text = f"{hypothesis.id}: {hypothesis.says}{part}{why}"
    stdout.print(f"[{_STATES[hypothesis.state]}]{hypothesis.state}[/]: {escaped(text)}", soft_wrap=True)
    for sign, ids in (("for", hypothesis.supported_by), ("against", hypothesis.contradicted_by)):
        for clue in (clues[id_] for id_ in ids):
            stdout.say(f"    {sign}: {clue.what}: {clue.a} -> {clue.b}")
