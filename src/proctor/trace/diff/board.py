"""The evidence board: clues by their part of the change, and what they say about each hypothesis."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from proctor.trace.diff.changes import Change
from proctor.trace.diff.comparable import Basis
from proctor.trace.diff.evidence import Clue, Evidence, Finding, Part, Rule, id_of, microseconds, milliseconds, whole
from proctor.trace.diff.noise import Verdict
from proctor.trace.diff.rules import RULES
from proctor.trace.names import short_name

_WORTH = 0.01
"""Share of the whole change from which a single identity is a clue of its own."""
_MOSTLY = 0.8


class State(StrEnum):
    """How far a hypothesis is from a statement."""

    SUPPORTED = "supported"
    CONTESTED = "contested"
    """Clues speak for it and against it."""
    SUGGESTED = "suggested"
    """Its clues are there, and a difference between the captures could explain them as well."""
    NO_EVIDENCE = "no evidence"
    """What looks like a clue does not exceed noise."""
    RULED_OUT = "ruled out"


_ORDER = list(State)


class Hypothesis(msgspec.Struct, frozen=True, kw_only=True):
    """A statement that a rule allows, and how the clues stand to it.

    Attributes:
        id: of the rule.
        says: the statement.
        state: what may be said of it; never more than the captures' comparability allows.
        supported_by: ids of clues.
        contradicted_by: ids of clues.
        why: the reason why it is ruled out, or only suggested.
        contribution_ns: what its supporting clues cover of the change and no hypothesis before it does, so that no
            nanosecond is counted twice; None where they cover nothing.
        shared_ns: what they cover besides, and is counted for others.
        shared_with: ids of those others.
    """

    id: str
    says: str
    state: State
    supported_by: tuple[str, ...] = ()
    contradicted_by: tuple[str, ...] = ()
    why: str = ""
    contribution_ns: int | None = None
    shared_ns: int = 0
    shared_with: tuple[str, ...] = ()


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """Clues overlap (a kernel's change is part of its category's): only a diff's changes sum to the whole."""

    clues: tuple[Clue, ...] = ()
    hypotheses: tuple[Hypothesis, ...] = ()


def board(evidence: Evidence, rules: Iterable[Rule] = RULES) -> Board:
    """Tries every rule, and sorts what they looked at by its part of the change."""
    hypotheses: list[Hypothesis] = []
    clues: dict[str, Clue] = {}
    covered: dict[str, list[Part]] = {}
    for rule in rules:
        finding = rule.look(evidence)
        hypothesis = _hypothesis(rule, finding, evidence)
        if hypothesis is None:
            continue
        hypotheses.append(hypothesis)
        covered[rule.id] = [part for clue in finding.supported for part in clue.covers]
        for clue in (*finding.supported, *finding.against):
            clues.setdefault(clue.id, clue)
    for change in _worth(evidence.changes):
        clue = _clue_of(change)
        clues.setdefault(clue.id, clue)
    told = [_told(clue, hypotheses, evidence) for clue in clues.values()]
    told.sort(key=lambda clue: (clue.noise, -abs(clue.contribution_ns or 0), clue.id))
    hypotheses.sort(key=lambda h: _ORDER.index(h.state))
    hypotheses = _shared_out(hypotheses, covered)
    hypotheses.sort(key=lambda h: (_ORDER.index(h.state), -abs(h.contribution_ns or 0)))
    return Board(clues=tuple(told), hypotheses=tuple(hypotheses))


def _hypothesis(rule: Rule, finding: Finding, evidence: Evidence) -> Hypothesis | None:
    says = finding.says or rule.says
    if finding.ruled_out:
        return Hypothesis(id=rule.id, says=says, state=State.RULED_OUT, why=finding.ruled_out)
    if not finding.supported:
        return None
    state, why = _state(rule, finding, evidence)
    return Hypothesis(
        id=rule.id,
        says=says,
        state=state,
        supported_by=tuple(clue.id for clue in finding.supported),
        contradicted_by=tuple(clue.id for clue in finding.against),
        why=why,
    )


def _shared_out(hypotheses: list[Hypothesis], covered: dict[str, list[Part]]) -> list[Hypothesis]:
    """Gives each part of each change to the first hypothesis whose clues cover it."""
    owner: dict[tuple[str, str], str] = {}
    found = []
    for hypothesis in hypotheses:
        own = shared = 0
        others: dict[str, None] = {}
        cells = {
            (part.change, which): ns
            for part in covered.get(hypothesis.id, ())
            for which in ("iterations", "calls", "per_call")
            if (ns := getattr(part, which))
        }
        for cell, ns in cells.items():
            first = owner.setdefault(cell, hypothesis.id)
            if first == hypothesis.id:
                own += ns
            else:
                shared += ns
                others[first] = None
        found.append(
            msgspec.structs.replace(
                hypothesis,
                contribution_ns=own if cells else None,
                shared_ns=shared,
                shared_with=tuple(others),
            )
        )
    return found


def _state(rule: Rule, finding: Finding, evidence: Evidence) -> tuple[State, str]:
    if all(clue.noise for clue in finding.supported):
        return State.NO_EVIDENCE, "the clue does not exceed what repeated launches in one window show"
    if any(not clue.noise for clue in finding.against):
        return State.CONTESTED, ""
    barring = [
        limit.what for limit in evidence.comparability.limits if any(basis in limit.bars for basis in rule.rests_on)
    ]
    if barring:
        return State.SUGGESTED, f"the captures themselves differ: {'; '.join(barring)}"
    return State.SUPPORTED, ""


def _worth(changes: tuple[Change, ...]) -> list[Change]:
    """Changes large enough to be a clue; a sum of sizes, since changes of both signs can hide in a small total."""
    sizes = sum(abs(change.delta_ns) for change in changes)
    return [change for change in changes if change.delta_ns and abs(change.delta_ns) >= _WORTH * sizes]


def _clue_of(change: Change) -> Clue:
    return Clue(
        id=id_of(change),
        what=f"{change.kind} ({change.verdict}): {short_name(change.name)}",
        a=_figures(change, "a"),
        b=_figures(change, "b"),
        basis=Basis.TIMES,
        covers=whole([change]),
        supports=("iterations_only",) if _follows_iterations(change) else (),
        against=("iterations_only",) if _defies_iterations(change) else (),
        noise=change.verdict is Verdict.WITHIN and not change.split.calls and not change.split.iterations,
    )


def _follows_iterations(change: Change) -> bool:
    return abs(change.split.iterations) >= _MOSTLY * abs(change.delta_ns)


def _defies_iterations(change: Change) -> bool:
    return change.verdict is Verdict.BEYOND and abs(change.split.per_call) > abs(change.split.iterations)


def _figures(change: Change, side: str) -> str:
    tally = change.a if side == "a" else change.b
    if tally is None:
        return "none"
    return f"{tally.calls:,} x {microseconds(tally.mean_ns)} = {milliseconds(tally.total_ns)}"


def _told(clue: Clue, hypotheses: list[Hypothesis], evidence: Evidence) -> Clue:
    """The clue with the hypotheses it bears on, and its share of the change."""
    known = {hypothesis.id for hypothesis in hypotheses if hypothesis.state is not State.RULED_OUT}
    supports = {h.id for h in hypotheses if clue.id in h.supported_by} | (known & set(clue.supports))
    against = {h.id for h in hypotheses if clue.id in h.contradicted_by} | (known & set(clue.against))
    total = abs(sum(change.delta_ns for change in evidence.changes))
    part = sum(part.total for part in clue.covers) if clue.covers else None
    return msgspec.structs.replace(
        clue,
        supports=tuple(sorted(supports)),
        against=tuple(sorted(against)),
        contribution_ns=part,
        share=part / total if total and part is not None else None,
    )
