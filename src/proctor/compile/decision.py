"""Keep, skip or inconclusive: the rules for one target, in the order in which they apply."""

from __future__ import annotations

from typing import Literal, NamedTuple

from proctor.compile.breakeven import CACHES, ahead, compile_seconds, net_gain, scaled
from proctor.compile.estimate import Estimate, units_per_row
from proctor.compile.flags import not_compiled
from proctor.compile.model import ANSWERS, ENCODER, Finding, Interval, Measured
from proctor.compile.subsets import break_evens
from proctor.compile.words import counted, listed, seconds, times_between, verb_and_seconds

NEGLIGIBLE = 0.005
"""Share of the encoder's time below which a saving that may be nothing is not worth more rounds."""

_WHOLES = (ENCODER, ANSWERS)


class _Decided(NamedTuple):
    decision: Literal["keep", "skip", "inconclusive"]
    reason: str


def decide(measured: Measured, target: str, time: Estimate | None, encoder: Estimate | None) -> Finding:
    """The verdict on one target.

    Args:
        measured: what was measured.
        target: a target, the encoder or the answers.
        time: of the target; None where it was not timed.
        encoder: of the whole encoder; None likewise.
    """
    decided = _by_outputs(measured, target) or _by_kind(measured, target, time)
    if time is None:
        decided = decided or _Decided("inconclusive", "it was not timed in both arms")
        return Finding(target=target, decision=decided.decision, reason=decided.reason)
    decided = decided or _by_speed(measured, target, time, encoder)
    return Finding(
        target=target,
        decision=decided.decision,
        reason=decided.reason,
        eager=time.interval(lambda seconds: seconds[..., 0]),
        compiled=time.interval(lambda seconds: seconds[..., 1]),
        saved=time.saved,
        speedup=speedup(time),
        break_even=break_evens(measured, [target], time.saved, time.shapes),
        more_rounds=time.more_rounds() if decided.decision == "inconclusive" and _covers_zero(time.saved) else None,
    )


def speedup(time: Estimate) -> Interval | None:
    """Eager over compiled; None where the clock shows no time at all."""
    if min(time.value.min(), time.draws.min()) <= 0:
        return None
    return time.interval(lambda seconds: seconds[..., 0] / seconds[..., 1])


def unchecked(measured: Measured, target: str, shapes: tuple[str, ...]) -> tuple[str, ...]:
    """Shapes of `shapes` at which nobody compared the outputs of `target`, its own or those of all that is in it."""
    mine = _compared(measured, target)
    if target not in _WHOLES:
        return tuple(shape for shape in shapes if shape not in mine)
    if any(one.target in (target, *_WHOLES) and one.probes for one in measured.answers):
        return ()
    inside = [_compared(measured, name) for name in measured.targets]
    covered = mine | _compared(measured, ENCODER) | (set.intersection(*inside) if inside else set())
    return tuple(shape for shape in shapes if shape not in covered)


def _compared(measured: Measured, target: str) -> set[str]:
    return {one.shape for one in measured.agreements if one.target == target}


def _within(measured: Measured, target: str) -> tuple[str, ...]:
    """The target and, where it is a whole, what is in it."""
    return (target, *measured.targets, ENCODER) if target in _WHOLES else (target,)


def _by_outputs(measured: Measured, target: str) -> _Decided | None:
    """A gate that failed, at any shape and level, beats any speed; for a whole, one of anything in it."""
    names = _within(measured, target)
    failed = [one for one in measured.agreements if one.target in names and not one.passed]
    if not failed:
        return _by_answers(measured, names)
    first = failed[0]
    whose = "its outputs are" if first.target == target else f"the outputs of {first.target} are"
    at = f"{first.shape} ({first.level})"
    why = first.reason or "they do not agree"
    more = f", and at {len(failed) - 1} more" if len(failed) > 1 else ""
    return _Decided("skip", f"{whose} not those of the uncompiled model at {at}: {why}{more}")


def _by_answers(measured: Measured, names: tuple[str, ...]) -> _Decided | None:
    """Answers of the whole engine that failed speak against every target that was compiled in it."""
    for one in measured.answers:
        if not one.passed and one.target in (*names, *_WHOLES):
            return _Decided("skip", f"the engine's answers are not those of the uncompiled model: {one.reason}")
    return None


def _by_kind(measured: Measured, target: str, time: Estimate | None) -> _Decided | None:
    """What makes the timings say nothing."""
    absent = not_compiled(measured, target)
    inside = measured.targets if target in _WHOLES else {}
    if absent or (inside and all(not_compiled(measured, name) for name in inside)):
        return _Decided("inconclusive", "it was not compiled: no graph was made, and both arms ran the same code")
    if time is None:
        return None
    if speedup(time) is None:
        return _Decided("inconclusive", "the clock is too coarse for it: it shows no time at all")
    if time.once:
        of = counted(time.rounds, "round")
        why = "the next process may show anything; measure at least two"
        return _Decided("inconclusive", f"{_measured(time)}, seen in one process ({of}) only: {why}")
    return None


def _by_speed(measured: Measured, target: str, time: Estimate, encoder: Estimate | None) -> _Decided:
    saved = time.saved
    if saved.low is None or saved.high is None:
        return _Decided("inconclusive", f"{_measured(time)}, without an interval")
    if saved.high < 0:
        return _Decided("skip", f"{_measured(time)}: it is slower{_dispatch(measured, target)}")
    if _covers_zero(saved):
        return _in_noise(measured, target, time, encoder)
    late = _too_late(measured, target, time)
    if late:
        return _Decided("skip", f"{_measured(time)}, but {late}")
    missing = unchecked(measured, target, time.shapes)
    if missing:
        return _Decided("inconclusive", f"{_measured(time)}, but nobody compared its outputs at {listed(missing)}")
    return _Decided("keep", _measured(time))


def _in_noise(measured: Measured, target: str, time: Estimate, encoder: Estimate | None) -> _Decided:
    late = _too_late(measured, target, time)
    if late:
        return _Decided("skip", f"{_measured(time)}: {late}")
    most = time.saved.high or 0.0
    if encoder is not None and target not in _WHOLES and most < NEGLIGIBLE * encoder.value[0]:
        at_best = f"at best {seconds(most)} of the encoder's {seconds(float(encoder.value[0]))}"
        return _Decided("skip", f"{_measured(time)}: {at_best}, too little to matter{_dispatch(measured, target)}")
    more = time.more_rounds()
    decide = (
        "more rounds will hardly decide"
        if more is None
        else (
            f"about {counted(more, 'more round')}, in {counted(more // time.rounds, 'more process')}, would decide on "
            "an effect of this size"
        )
    )
    return _Decided("inconclusive", f"{_measured(time)}: the noise is larger than the effect; {decide}")


def _too_late(measured: Measured, target: str, time: Estimate) -> str:
    """That the planned run ends before compiling has paid, even warm and at the upper bound; empty where it may pay."""
    if measured.rows is None:
        return ""
    per_row = scaled(time.saved, units_per_row(measured, time.shapes))
    costs = {cache: compile_seconds(measured, [target], cache) for cache in CACHES}
    nets = {cache: net_gain(cost, per_row, measured.rows) for cache, cost in costs.items() if cost is not None}
    if "warm" not in nets or not all(ahead(net) is False for net in nets.values()):
        return ""
    loses = f"it loses {seconds(-(nets['warm'].high or 0.0))} at least, even with a warm cache"
    return f"a run of {measured.rows:,} rows does not pay for compiling it: {loses}"


def _measured(time: Estimate) -> str:
    """The deciding figure."""
    factor = speedup(time)
    told = "" if factor is None else f", {times_between(factor)}"
    return f"{verb_and_seconds(time.saved)} of {seconds(float(time.value[0]))} a unit{told}"


def _covers_zero(found: Interval) -> bool:
    return found.low is not None and found.high is not None and found.low <= 0 <= found.high


def _dispatch(measured: Measured, target: str) -> str:
    found = [one.seconds for one in measured.dispatches if one.target == target]
    return f" (a compiled call costs {seconds(found[0])} before any work is done)" if found and found[0] > 0 else ""
