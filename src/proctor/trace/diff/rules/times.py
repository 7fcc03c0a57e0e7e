"""Rules about how long launches take: iterations alone, the clock, more tokens, occupancy, waiting for a peer."""

from __future__ import annotations

import statistics

from proctor.trace.diff.changes import Change
from proctor.trace.diff.comparable import Basis
from proctor.trace.diff.evidence import (
    NOTHING,
    Clue,
    Evidence,
    Finding,
    Rule,
    in_part,
    microseconds,
    milliseconds,
    moved,
    time_of,
    whole,
)
from proctor.trace.diff.noise import Verdict
from proctor.trace.diff.occupied import occupancy_of
from proctor.trace.diff.sides import ATTENTION, COMMUNICATION, KV_CACHE
from proctor.trace.names import short_name

_STEADY = 0.9
"""Share of kernel time that must agree before a statement about "all kernels" is made."""
_MOST = 0.5
"""Share of kernel time that must have been looked at."""
_SHOWN = 3
_WALL = 0.05
"""Windows are cut at any point of a repetition: smaller differences, or what the edges could make, say nothing."""


def _iterations_only(e: Evidence) -> Finding:
    """The windows hold another number of repetitions, and nothing else differs."""
    repeats = e.iterations
    if repeats is None or repeats.a == repeats.b:
        return NOTHING
    scaled = Clue(
        id="repetitions",
        what=f"repetitions in the window ({repeats.what})",
        a=f"{repeats.a:,}",
        b=f"{repeats.b:,}",
        basis=Basis.COUNTS,
        covers=in_part(e.changes, iterations=True),
    )
    against = [*_one_sided(e), *_uneven(e), *_slower(e), *_longer(e)]
    return Finding((scaled,), tuple(against))


def _longer(e: Evidence) -> list[Clue]:
    """A repetition takes longer or shorter by the clock on the wall, whatever its kernels do."""
    window = e.totals["window"]
    if e.iterations is None or not window.a or not window.b:
        return []
    a, b = window.a * e.a.ranks / e.iterations.a, window.b * e.b.ranks / e.iterations.b
    if abs(b / a - 1) < max(_WALL, e.iterations.edge):
        return []
    what = "time on the clock per repetition (window over repetitions of a rank)"
    return [Clue(id="window_per_repetition", what=what, a=milliseconds(a), b=milliseconds(b), basis=Basis.IDLE)]


def _one_sided(e: Evidence) -> list[Clue]:
    alone = [*e.only("a"), *e.only("b")]
    if not alone:
        return []
    return [
        Clue(
            id="one_sided",
            what="kernels that only one side has",
            a=f"{len(e.only('a'))}",
            b=f"{len(e.only('b'))}",
            basis=Basis.NAMES,
            covers=whole(alone),
        )
    ]


def _uneven(e: Evidence) -> list[Clue]:
    """Kernels whose counts did not follow the repetitions."""
    found = [c for c in e.matched if c.a and c.b and not e.same_count(c.a.calls, c.b.calls)]
    return [
        Clue(
            id=f"count:{change.name}",
            what=f"launches that do not follow the repetitions: {short_name(change.name, 80)}",
            a=f"{change.a.calls:,}",
            b=f"{change.b.calls:,}",
            basis=Basis.COUNTS,
            covers=in_part([change], calls=True),
        )
        for change in found[:_SHOWN]
        if change.a and change.b
    ]


def _slower(e: Evidence) -> list[Clue]:
    """Kernels whose launches take longer or shorter, beyond noise and by enough to matter."""
    return [_per_call(c) for c in e.matched if moved(c)][:_SHOWN]


def _per_call(change: Change) -> Clue:
    """By medians of each shape: over all launches, a few more of a larger shape would pass for slower ones."""
    usual, typical = change.usual_ns or 0.0, change.typical_ns or 0.0
    return Clue(
        id=f"per_call:{change.name}",
        what=f"usual time per launch (medians by shape), {change.verdict}: {short_name(change.name, 80)}",
        a=microseconds(usual),
        b=microseconds(usual + typical),
        basis=Basis.TIMES,
        covers=in_part([change]),
        noise=change.verdict in (Verdict.WITHIN, Verdict.FEW),
    )


def _clock(e: Evidence) -> Finding:
    """Every kernel slower (or faster) per launch by one factor, launched in the same way."""
    asked = [
        c
        for c in e.matched
        if c.category != COMMUNICATION and c.ratio is not None and not c.config and not c.shapes_changed
    ]
    if len(asked) < 5:
        return NOTHING
    total = sum(map(time_of, asked))
    if total < _MOST * sum(time_of(change) for change in e.kernels):
        return NOTHING
    factor = _weighted_median([(c.ratio or 1.0, time_of(c)) for c in asked])
    if abs(factor - 1) < 0.02:
        return Finding(ruled_out=f"kernels launched in the same way take the same: a factor of {factor:.3f}")
    slack = max(0.25 * abs(factor - 1), 0.01)
    agreeing = [c for c in asked if abs((c.ratio or 1.0) - factor) <= slack]
    share = sum(map(time_of, agreeing)) / total
    if share < _STEADY or len(agreeing) < _STEADY * len(asked) or not any(map(moved, agreeing)):
        return Finding(ruled_out=f"no one factor fits: {share:.0%} of kernel time moved by {factor:.3f}")
    one = Clue(
        id="one_factor",
        what=f"usual time per launch, {len(agreeing)} of {len(asked)} kernels with {share:.0%} of the time",
        a="1.000",
        b=f"{factor:.3f}",
        basis=Basis.TIMES,
        covers=in_part(agreeing),
    )
    return Finding((one,))


def _weighted_median(values: list[tuple[float, int]]) -> float:
    half, reached = sum(weight for _, weight in values) / 2, 0
    for value, weight in sorted(values):
        reached += weight
        if reached >= half:
            return value
    return statistics.median(value for value, _ in values)


def _more_tokens(e: Evidence) -> Finding:
    """Both the KV-cache write and attention grew per launch: the write's time follows the tokens."""
    written, attended = e.in_category(KV_CACHE), e.in_category(ATTENTION)
    writes, attends = _mean_ratio(written), _mean_ratio(attended)
    if writes is None or attends is None:
        return NOTHING
    clues = [_grown("kv_write", "KV-cache write", written), _grown("attention", "attention", attended)]
    if writes >= 1.2 and attends >= 1.1:
        return Finding(tuple(clues))
    if writes >= 1.2:
        return Finding((), (), ruled_out=f"the KV-cache write grew {writes:.2f} times, attention {attends:.2f} times")
    return Finding(ruled_out=f"a KV-cache write takes {writes:.2f} times as long")


def _grown(id_: str, what: str, changes: tuple[Change, ...]) -> Clue:
    a, b = _mean(changes, "a"), _mean(changes, "b")
    return Clue(
        id=id_,
        what=f"{what}, time per launch (mean)",
        a=microseconds(a or 0),
        b=microseconds(b or 0),
        basis=Basis.TIMES,
        covers=in_part(changes),
    )


def _mean(changes: tuple[Change, ...], side: str) -> float | None:
    both = [(change.a, change.b) for change in changes if change.a and change.b]
    tallies = [one if side == "a" else two for one, two in both]
    calls = sum(tally.calls for tally in tallies)
    return sum(tally.total_ns for tally in tallies) / calls if calls else None


def _mean_ratio(changes: tuple[Change, ...]) -> float | None:
    a, b = _mean(changes, "a"), _mean(changes, "b")
    return b / a if a and b else None


def _launch_config(e: Evidence) -> Finding:
    """The same kernel at a lower occupancy because of registers or shared memory, and slower beyond noise."""
    clues = []
    for change in e.matched:
        if change.verdict is not Verdict.BEYOND or (change.typical_ns or 0) <= 0 or not change.config:
            continue
        one, two = occupancy_of(e.a.gpus, change.config_a), occupancy_of(e.b.gpus, change.config_b)
        if one is not None and two is not None and two.share < one.share:
            clues.append(
                Clue(
                    id=f"occupancy:{change.name}",
                    what=f"occupancy and launch: {short_name(change.name, 80)} ({'; '.join(change.config)})",
                    a=f"{one.share:.0%}",
                    b=f"{two.share:.0%}, limited by {' and '.join(two.limiters)}",
                    basis=Basis.TIMES,
                    covers=in_part([change]),
                )
            )
    return Finding(tuple(clues))


def _waiting(e: Evidence) -> Finding:
    """Communication takes longer per launch while everything else does not: a kernel of NCCL waits for its peers."""
    steady = e.steady([c for c in e.kernels if c.category != COMMUNICATION])
    grown = [c for c in e.matched if c.category == COMMUNICATION and _mean_growth(c) >= 1.1]
    if not grown:
        return NOTHING
    clues = [
        Clue(
            id=f"waiting:{change.name}",
            what=f"communication, time per launch (mean), {change.verdict}: {short_name(change.name, 60)}",
            a=microseconds(change.a.mean_ns),
            b=microseconds(change.b.mean_ns),
            basis=Basis.TIMES,
            covers=in_part([change]),
            noise=change.verdict not in (Verdict.BEYOND, Verdict.TAIL),
        )
        for change in grown
        if change.a and change.b
    ]
    return Finding(tuple(clues)) if steady >= _STEADY else NOTHING


def _mean_growth(change: Change) -> float:
    return change.b.mean_ns / change.a.mean_ns if change.a and change.b and change.a.mean_ns else 1.0


def _host_bound(e: Evidence) -> Finding:
    """The GPU idles more while its kernels take the same: what became slower is not a kernel."""
    idle, busy = e.totals["idle"], e.totals["busy"]
    if idle.a is None or idle.b is None or not busy.a or not busy.b:
        return NOTHING
    shares = (idle.a / (idle.a + busy.a), idle.b / (idle.b + busy.b))
    clue = Clue(
        id="idle",
        what="share of time in which a GPU does nothing",
        a=f"{shares[0]:.1%} ({milliseconds(idle.a)})",
        b=f"{shares[1]:.1%} ({milliseconds(idle.b)})",
        basis=Basis.IDLE,
    )
    if shares[1] - shares[0] < 0.05:
        return Finding(ruled_out=f"the GPU idles {shares[0]:.1%} and {shares[1]:.1%} of the time")
    supported = (clue, *_slower_calls(e))
    if e.steady() >= _STEADY:
        return Finding(supported)
    against = (*_slower(e), *_one_sided(e))
    return Finding(supported, against) if against else NOTHING


def _slower_calls(e: Evidence) -> list[Clue]:
    """Calls of the CUDA API that do not wait for the GPU take the CPU longer each."""
    means = []
    for side in (e.a, e.b):
        chosen = [amount for name, amount in side.calls.items() if "ynchronize" not in name]
        calls = sum(amount.calls for amount in chosen)
        means.append(sum(amount.total for amount in chosen) / calls if calls else 0.0)
    if not means[0] or means[1] < 1.2 * means[0]:
        return []
    what = "the CPU's time in a call of the CUDA API that does not synchronise (mean)"
    return [Clue(id="api_per_call", what=what, a=microseconds(means[0]), b=microseconds(means[1]), basis=Basis.API)]


TIME_RULES = (
    Rule(
        "iterations_only",
        "the windows hold another number of repetitions, and that is all",
        (Basis.COUNTS, Basis.TIMES),
        _iterations_only,
    ),
    Rule(
        "clock",
        "all kernels changed by one factor: the GPU's clock, power or temperature",
        (Basis.TIMES,),
        _clock,
    ),
    Rule("more_tokens", "there are more tokens to attend to and to write", (Basis.TIMES,), _more_tokens),
    Rule("launch_config", "a kernel runs at a lower occupancy", (Basis.TIMES,), _launch_config),
    Rule("waiting", "a rank waits longer for its peers", (Basis.TIMES,), _waiting),
    Rule(
        "host_bound",
        "the GPU waits more, and its kernels take the same: look at the CPU, at synchronisation and at other ranks",
        (Basis.IDLE, Basis.TIMES),
        _host_bound,
    ),
)
