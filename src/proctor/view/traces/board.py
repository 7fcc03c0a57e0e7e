"""What a diff of two traces shows: what the captures allow, hypotheses with their clues, and what stays open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from proctor.trace.diff import Diff
from proctor.trace.diff.board import Hypothesis, State
from proctor.trace.diff.changes import Change, Group
from proctor.trace.diff.comparable import Basis, Level, Limit
from proctor.trace.diff.evidence import Clue, id_of
from proctor.trace.diff.noise import Verdict
from proctor.view.traces.addresses import to, work
from proctor.view.traces.files import TraceFile
from proctor.view.traces.units import milliseconds

MOST_CHANGES = 60
MOST_GROUPS = 15
_MOST_PLACES = 3
_TONES = {State.SUPPORTED: "good", State.CONTESTED: "warn", State.SUGGESTED: "warn"}
_LEVELS = {Level.SAME: "good", Level.COMPARABLE: "good", Level.LIMITED: "warn", Level.REFUSED: "bad"}
_TRIED = (State.SUPPORTED, State.CONTESTED, State.SUGGESTED)
_MEANING = {
    State.SUPPORTED: "The figures fit, and nothing seen speaks against it.",
    State.CONTESTED: "Some of what was seen speaks for it, some against it.",
    State.SUGGESTED: "The figures fit; so would a difference between the captures themselves.",
    State.NO_EVIDENCE: "What looks like a clue does not exceed noise.",
    State.RULED_OUT: "The figures exclude it.",
}


class Place(NamedTuple):
    """Where something can be seen: what it is, and the address of the timeline on each side (A or B) that has it."""

    what: str
    sides: list[tuple[str, str]]


class ClueLine(NamedTuple):
    """A clue with the places where it can be seen; `sign` is ``for`` or ``against``."""

    sign: str
    clue: Clue
    where: list[Place]


class Card(NamedTuple):
    """A hypothesis on the board."""

    hypothesis: Hypothesis
    tone: str
    meaning: str
    part: str
    lines: list[ClueLine]


class BoardView(NamedTuple):
    """A diff as its page shows it.

    Attributes:
        tone: of the verdict on the captures.
        cards: hypotheses that something speaks for.
        weak: those without evidence, and those that are ruled out.
        others: clues that no rule asked for, and that bear on a hypothesis all the same.
        open: what could not be decided, and why.
        changes: what ran, by how much it changed, with ways into the timelines.
        left_out: further changes, with their time in sum, ns.
        places: where the change is, by several ways to look at it.
    """

    tone: str
    cards: list[Card]
    weak: list[Card]
    others: list[ClueLine]
    open: list[tuple[str, str]]
    changes: list[tuple[Change, str, Place]]
    left_out: tuple[int, int]
    places: list[tuple[str, list[Group]]]


def board_view(found: Diff, a: TraceFile, b: TraceFile) -> BoardView:
    """A diff of two files, for its page."""
    changes = {id_of(change): change for change in found.changes}
    clues = {clue.id: clue for clue in found.board.clues}

    def lines(sign: str, chosen: Iterable[Clue]) -> list[ClueLine]:
        return [ClueLine(sign, clue, _where(clue, changes, a, b)) for clue in chosen]

    def card(one: Hypothesis) -> Card:
        seen = lines("for", (clues[name] for name in one.supported_by))
        seen += lines("against", (clues[name] for name in one.contradicted_by))
        return Card(one, _TONES.get(one.state, "open"), _MEANING[one.state], part_of(one), seen)

    cards = [card(one) for one in found.board.hypotheses]
    asked = {name for one in found.board.hypotheses for name in (*one.supported_by, *one.contradicted_by)}
    rest = [clue for clue in clues.values() if clue.id not in asked and (clue.supports or clue.against)]
    shown, left = found.changes[:MOST_CHANGES], found.changes[MOST_CHANGES:]
    return BoardView(
        tone=_LEVELS[found.comparability.level],
        cards=[one for one in cards if one.hypothesis.state in _TRIED],
        weak=[one for one in cards if one.hypothesis.state not in _TRIED],
        others=lines("", rest),
        open=list(undecided(found)),
        changes=[(one, verdict_of(one), _place(one, a, b)) for one in shown],
        left_out=(len(left), sum(one.delta_ns for one in left)),
        places=list(_places(found)),
    )


def undecided(found: Diff) -> Iterable[tuple[str, str]]:
    """What could not be decided, and why."""
    for reason in found.comparability.reasons:
        yield "The comparison", reason
    for limit in found.comparability.limits:
        if limit.bars:
            yield f"Conclusions from {bars_of(limit)}", f"{limit.what}: {limit.meaning}"
    for one in found.board.hypotheses:
        if one.state in (State.CONTESTED, State.SUGGESTED):
            yield one.says, one.why or _MEANING[one.state]
    whys = dict.fromkeys(total.why for total in found.totals if total.why)
    for why in whys:
        yield ", ".join(total.name for total in found.totals if total.why == why), why
    few = [change for change in found.changes if change.verdict is Verdict.FEW]
    if few:
        total = sum(abs(change.delta_ns) for change in few)
        yield f"{len(few):,} of what ran ({milliseconds(total)} ms of change)", "too few launches to tell chance"
    if found.totals and not found.unchanged:
        if not any(one.state in _TRIED for one in found.board.hypotheses):
            yield "Why anything changed", "no rule fits: these figures show no explanation"
        yield "What chance does between captures", "noise is judged within one window a side"


def verdict_of(change: Change) -> str:
    """What may be said of a change, in words."""
    if change.verdict is Verdict.ONE_SIDE:
        return "new in B" if change.a is None else "gone from B"
    return f"{change.verdict}, other shapes" if change.shapes_changed else str(change.verdict)


def bars_of(limit: Limit) -> str:
    """What no conclusion may rest on because of a limit."""
    return "anything" if len(limit.bars) == len(Basis) else ", ".join(limit.bars)


def part_of(hypothesis: Hypothesis) -> str:
    """Which part of the change a hypothesis explains."""
    if hypothesis.contribution_ns is None:
        return ""
    own, shared = f"{milliseconds(hypothesis.contribution_ns, '+')} ms", ", ".join(hypothesis.shared_with)
    if not shared:
        return own
    more = f"{milliseconds(hypothesis.shared_ns, '+')} ms"
    if not hypothesis.contribution_ns:
        return f"its {more} are counted for {shared}"
    return f"{own}, and {more} counted for {shared}"


def _where(clue: Clue, changes: Mapping[str, Change], a: TraceFile, b: TraceFile) -> list[Place]:
    """The work that a clue is about, what changed most first; the whole timelines where it is about none."""
    covered = dict.fromkeys(part.change for part in clue.covers)
    known = sorted((changes[name] for name in covered if name in changes), key=lambda one: -abs(one.delta_ns))
    if not known:
        return [Place("all of it", [("A", to("timeline", a)), ("B", to("timeline", b))])]
    return [_place(change, a, b) for change in known[:_MOST_PLACES]]


def _place(change: Change, a: TraceFile, b: TraceFile) -> Place:
    """Ways to the longest launch, in both timelines as far as it is there."""
    sides = (("A", a, change.a), ("B", b, change.b))
    ways = ((side, work(file, change.kind, change.name)) for side, file, has in sides if has)
    return Place(change.name, [(side, way) for side, way in ways if way is not None])


def _places(found: Diff) -> Iterable[tuple[str, list[Group]]]:
    for title, groups in (
        ("Kind of work", found.categories),
        ("NVTX range", found.ranges),
        ("Synchronisation", found.syncs),
        ("Call of the CUDA API", found.calls),
    ):
        changed = [group for group in groups if group.delta_ns or group.a_calls != group.b_calls]
        if changed:
            yield title, changed[:MOST_GROUPS]
