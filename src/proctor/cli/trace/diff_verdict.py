"""What a diff says: what the captures allow, the hypotheses with their clues, and conditions for CI."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from proctor.cli.output import counted, stdout
from proctor.cli.trace.diff_words import say, say_state

if TYPE_CHECKING:
    from proctor.trace.diff import Checked, Diff
    from proctor.trace.diff.board import Hypothesis
    from proctor.trace.diff.evidence import Clue

_LEVELS = {"same content": "green", "comparable": "green", "comparable with limits": "yellow", "refused": "bold red"}
_STATES = {"supported": "green", "contested": "yellow", "suggested": "yellow", "no evidence": "dim", "ruled out": "dim"}
_OUTCOMES = {"passed": "green", "failed": "bold red", "within noise": "yellow", "cannot be judged": "bold red"}
_CLUES = 3
"""Clues shown for a hypothesis, and against it."""


def show_check(found: Diff) -> None:
    """What the captures themselves allow one to conclude."""
    check = found.comparability
    stdout.print(f"[{_LEVELS[check.level]}]{check.level}[/]")
    for reason in check.reasons:
        say(reason, indent=2)
    for limit in check.limits:
        if len(limit.bars) == len(_bases()):
            bars = " (bars every conclusion)"
        else:
            bars = f" (bars conclusions from {', '.join(limit.bars)})" if limit.bars else ""
        say(f"{limit.what}: {limit.meaning}{bars}", indent=2)
    same = [f"{fact.what}: {fact.a}" for fact in check.facts if fact.same]
    if same:
        say(f"the same on both sides: {'; '.join(same)}", indent=2, style="dim")


def show_board(found: Diff, *, why: bool) -> None:
    """The hypotheses: what fits with its clues, what is ruled out by its id alone unless asked `why`."""
    board = found.board
    if not board.hypotheses:
        return
    clues = {clue.id: clue for clue in board.clues}
    ruled_out = [h for h in board.hypotheses if h.state == "ruled out"]
    for hypothesis in board.hypotheses:
        if why or hypothesis not in ruled_out:
            _show_hypothesis(hypothesis, clues, None if why else _CLUES)
    if not any(h.state in ("supported", "contested", "suggested") for h in board.hypotheses):
        say("no rule fits: the changes below have no explanation that these figures could show")
    if ruled_out and not why:
        say_state("ruled out", "dim", f"{', '.join(h.id for h in ruled_out)} (--why: reasons)")
    if why:
        _show_other_clues(board.clues, board.hypotheses)
    say(
        "noise is judged within one window a side; how far two captures of one program differ is not in it", style="dim"
    )


def show_checked(checked: Iterable[Checked]) -> None:
    """Conditions, and what came of them."""
    for each in checked:
        say_state(each.outcome, _OUTCOMES[each.outcome], f"{each.gate}  ({each.said})")
        if each.why:
            say(each.why, indent=4)


def _bases() -> tuple[str, ...]:
    from proctor.trace.diff.comparable import Basis

    return tuple(Basis)


def _show_hypothesis(hypothesis: Hypothesis, clues: Mapping[str, Clue], few: int | None) -> None:
    part = _part(hypothesis)
    says_state = f"{hypothesis.id}: {hypothesis.says}{part}"
    say_state(hypothesis.state, _STATES[hypothesis.state], says_state)
    if hypothesis.why:
        say(f"why: {hypothesis.why}", indent=4)
    for sign, ids in (("for", hypothesis.supported_by), ("against", hypothesis.contradicted_by)):
        for clue in (clues[id_] for id_ in ids[:few]):
            say(f"{sign}: {clue.what}: {clue.a} -> {clue.b}", indent=4)
        if few is not None and len(ids) > few:
            say(f"{sign}: {counted(len(ids) - few, 'more clue')} (--why)", indent=4)


def _part(hypothesis: Hypothesis) -> str:
    if hypothesis.contribution_ns is None:
        return ""
    own, shared = hypothesis.contribution_ns, hypothesis.shared_ns
    others = ", ".join(hypothesis.shared_with)
    if not others:
        return f" [{own / 1e6:+,.3f} ms]"
    if not own:
        return f" [its {shared / 1e6:+,.3f} ms are counted for {others}]"
    return f" [{own / 1e6:+,.3f} ms, and {shared / 1e6:+,.3f} ms counted for {others}]"


def _show_other_clues(clues: Iterable[Clue], hypotheses: Iterable[Hypothesis]) -> None:
    """Clues that bear on a hypothesis without having been asked for by its rule."""
    shown = {id_ for h in hypotheses for id_ in (*h.supported_by, *h.contradicted_by)}
    for clue in clues:
        if clue.id not in shown and (clue.supports or clue.against):
            bears = [f"for {', '.join(clue.supports)}"] if clue.supports else []
            bears += [f"against {', '.join(clue.against)}"] if clue.against else []
            say(f"clue {' and '.join(bears)}: {clue.what}: {clue.a} -> {clue.b}", indent=2)
