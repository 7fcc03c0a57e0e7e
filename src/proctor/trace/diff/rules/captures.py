"""Rules about what is not a kernel: CUDA graphs, synchronisation, pageable copies, exposed communication."""

from __future__ import annotations

import re

from proctor.trace.diff.comparable import Basis
from proctor.trace.diff.evidence import NOTHING, Clue, Evidence, Finding, Rule, milliseconds, whole
from proctor.trace.diff.sides import Kind, Side
from proctor.trace.diff.split import Amount

_GRAPH_LAUNCH = re.compile(r"(?:cu(?:da)?|hip)GraphLaunch")
_WAITS = re.compile(r"(?:cu(?:da)?|hip)(?:DeviceSynchronize|CtxSynchronize|StreamSynchronize|EventSynchronize)")
_FEWEST_MORE = 3


def _graphs(e: Evidence) -> Finding:
    """CUDA graphs are launched on one side only."""
    a, b = (_calls(side, _GRAPH_LAUNCH).calls for side in (e.a, e.b))
    if bool(a) == bool(b):
        return NOTHING if a or not (e.a.calls and e.b.calls) else Finding(ruled_out="no CUDA graph was launched")
    clue = Clue(id="graph_launches", what="launches of CUDA graphs", a=f"{a:,}", b=f"{b:,}", basis=Basis.API)
    says = "B launches CUDA graphs, A single kernels" if b else "A launches CUDA graphs, B single kernels"
    return Finding((clue,), says=says)


def _calls(side: Side, pattern: re.Pattern[str]) -> Amount:
    found = [amount for name, amount in side.calls.items() if pattern.match(name)]
    return Amount(sum(each.calls for each in found), sum(each.total for each in found))


def _new_syncs(e: Evidence) -> Finding:
    """Calls that wait for the GPU: more of them, by name, per repetition."""
    clues = []
    names = [name for name in dict.fromkeys([*e.a.calls, *e.b.calls]) if _WAITS.match(name)]
    for name in names:
        a, b = e.a.calls.get(name, Amount(0, 0)), e.b.calls.get(name, Amount(0, 0))
        rates = e.rates(a.calls, b.calls)
        if b.calls - a.calls >= _FEWEST_MORE and rates[1] >= 2 * rates[0]:
            clues.append(
                Clue(
                    id=f"sync:{name}",
                    what=f"calls of {name}, and the CPU's time in them",
                    a=f"{a.calls:,} ({milliseconds(a.total)})",
                    b=f"{b.calls:,} ({milliseconds(b.total)})",
                    basis=Basis.API,
                )
            )
    if clues:
        return Finding(tuple(clues))
    both = bool(e.a.calls and e.b.calls)
    return Finding(ruled_out="no synchronising call became more frequent") if both else NOTHING


def _pageable(e: Evidence) -> Finding:
    """Copies between the GPU and pageable memory: their number or their bytes."""
    found = [change for change in e.changes if change.kind is Kind.COPY and "pageable" in change.name]
    told = [change for change in e.changes if change.kind is Kind.COPY and "(" in change.name]
    if not found:
        return Finding(ruled_out="no copy of pageable memory on either side") if told else NOTHING
    sides = [[t for c in found if (t := c.a if side == "a" else c.b)] for side in "ab"]
    a, b = (sum(tally.bytes for tally in side) for side in sides)
    calls = [sum(tally.calls for tally in side) for side in sides]
    rates, counts = e.rates(a, b), e.rates(*calls)
    more = rates[1] >= 2 * rates[0] or counts[1] >= 2 * counts[0]
    if not more or calls[1] - calls[0] < _FEWEST_MORE or sum(change.delta_ns for change in found) <= 0:
        return Finding(ruled_out=f"copies of pageable memory: {calls[0]:,} with {a:,} bytes, then {calls[1]:,}, {b:,}")
    clue = Clue(
        id="pageable_copies",
        what="copies of pageable memory",
        a=f"{calls[0]:,} ({a:,} bytes)",
        b=f"{calls[1]:,} ({b:,} bytes)",
        basis=Basis.API,
        covers=whole(found),
    )
    return Finding((clue,))


def _exposed(e: Evidence) -> Finding:
    """Communication that nothing hides: more of its time is exposed."""
    exposed, total = e.totals.get("exposed"), e.totals.get("communication")
    if exposed is None or total is None or exposed.a is None or exposed.b is None or not total.a or not total.b:
        return NOTHING
    shares = (exposed.a / total.a, exposed.b / total.b)
    clue = Clue(
        id="exposed",
        what="share of communication during which no other kernel runs on that GPU",
        a=f"{shares[0]:.0%} ({milliseconds(exposed.a)})",
        b=f"{shares[1]:.0%} ({milliseconds(exposed.b)})",
        basis=Basis.IDLE,
    )
    if shares[1] - shares[0] >= 0.1 and exposed.b > exposed.a:
        return Finding((clue,))
    return Finding(ruled_out=f"exposed is {shares[0]:.0%} of communication in A, {shares[1]:.0%} in B")


CAPTURE_RULES = (
    Rule("graphs", "CUDA graphs are used on one side only", (Basis.API,), _graphs),
    Rule("new_syncs", "the CPU waits for the GPU more often", (Basis.API, Basis.COUNTS), _new_syncs),
    Rule("pageable", "more copies go through pageable memory", (Basis.API,), _pageable),
    Rule("exposed", "communication is hidden less", (Basis.IDLE,), _exposed),
)
