"""The difference of two traces: comparability first, then figures, then evidence."""

from __future__ import annotations

import msgspec

from proctor.trace.diff.board import Board, board
from proctor.trace.diff.changes import Change, Group, by_category, changes, groups
from proctor.trace.diff.comparable import Comparability, Level, comparability
from proctor.trace.diff.evidence import Evidence
from proctor.trace.diff.reading import read_side
from proctor.trace.diff.repeats import Iterations, by_counts, by_range, same_rate
from proctor.trace.diff.sides import Side
from proctor.trace.diff.split import Amount, Split
from proctor.trace.diff.totals import Total, totals
from proctor.trace.names import LineUp, line_up
from proctor.trace.trace import Trace


class Diff(msgspec.Struct, frozen=True, kw_only=True):
    """What changed from A to B, and what that supports.

    Attributes:
        a: the file before.
        b: the file after.
        comparability: what the captures themselves allow one to conclude.
        iterations: what repeats in both windows, if that is known; figures per repetition follow from it.
        totals: time, idle, overlap and counts of the windows as captured.
        changes: everything that ran on a GPU, by identity; `delta_ns` sum to the change of the total ``work``.
        split: the sum of the changes' parts.
        edges_ns: what of the part of calls is of launches that follow the repetitions but for what the edges of the
            windows cut: more launches per repetition, or a cut elsewhere, cannot be told apart.
        categories: the same by category of the line-up.
        ranges: kernels by the path of NVTX ranges that launched them.
        syncs: synchronisations by kind, with the time they waited.
        calls: calls of the CUDA API, with the CPU's time in them.
        board: clues and hypotheses.
    """

    a: str
    b: str
    comparability: Comparability
    iterations: Iterations | None = None
    totals: tuple[Total, ...] = ()
    changes: tuple[Change, ...] = ()
    split: Split = Split()
    edges_ns: int = 0
    categories: tuple[Group, ...] = ()
    ranges: tuple[Group, ...] = ()
    syncs: tuple[Group, ...] = ()
    calls: tuple[Group, ...] = ()
    board: Board = Board()

    @property
    def unchanged(self) -> bool:
        """Whether nothing that ran on a GPU differs in count, time or launch."""
        compared = self.comparability.level is not Level.REFUSED or bool(self.changes)
        return compared and not any(change.delta_ns or change.config or _counts(change) for change in self.changes)


def diff(a: Trace, b: Trace, *, per: str | None = None, places: LineUp | None = None, force: bool = False) -> Diff:
    """Compares two traces.

    Totals are of the windows as captured. Where a number of repetitions is known on both sides (`per`, or found in the
    kernels' counts), the part of a change that comes from a window holding more of them is split off.

    Args:
        a: the trace before.
        b: the trace after.
        per: text of the NVTX range that marks an iteration.
        places: the line-up; the built-in one where None.
        force: give figures although the comparison is refused; hypotheses are still not stated.

    Raises:
        UserError: a side has no range `per`, or a file is damaged.
    """
    places = places or line_up()
    one, two = read_side(a, places), read_side(b, places)
    iterations = by_counts(one, two) if per is None else by_range(one, two, per)
    checked = comparability(one, two, iterations)
    found = Diff(a=str(a.path), b=str(b.path), comparability=checked, iterations=iterations)
    if checked.level is Level.REFUSED and not force:
        return found
    return _filled(found, one, two)


def _filled(found: Diff, a: Side, b: Side) -> Diff:
    changed = changes(a, b, found.iterations)
    figures = totals(a, b, changed, found.iterations)
    total = Split()
    for change in changed:
        total = total.plus(change.split)
    states = Board()
    if found.comparability.level in (Level.COMPARABLE, Level.LIMITED):
        by_name = {figure.name: figure for figure in figures}
        states = board(Evidence(a, b, changed, by_name, found.iterations, found.comparability))
    return msgspec.structs.replace(
        found,
        totals=figures,
        changes=changed,
        split=total,
        edges_ns=_edges(changed, found.iterations, max(a.ranks, b.ranks, 1)),
        categories=groups(by_category(a), by_category(b)),
        ranges=groups(_named(a), _named(b)),
        syncs=groups(a.syncs, b.syncs),
        calls=groups(a.calls, b.calls),
        board=states,
    )


def _edges(changed: tuple[Change, ...], iterations: Iterations | None, ranks: int) -> int:
    if iterations is None or not iterations.edge:
        return 0
    pairs = [(c.split.calls, Amount(c.a.calls, 0), Amount(c.b.calls, 0)) for c in changed if c.a and c.b]
    return sum(part for part, a, b in pairs if same_rate(a, b, iterations, ranks))


def _named(side: Side) -> dict[str, Amount]:
    return {
        "(launched before the window)" if path is None else path or "(outside of all ranges)": amount
        for path, amount in side.paths.items()
    }


def _counts(change: Change) -> bool:
    return (change.a.calls if change.a else 0) != (change.b.calls if change.b else 0)
