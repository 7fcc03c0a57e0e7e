"""Keep, skip or inconclusive: the rules for one target, in the order in which they apply."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from proctor.compile.breakeven import CACHES, ahead, compile_seconds, net_gain, scaled
from proctor.compile.estimate import Estimate, estimate, units_per_row
from proctor.compile.flags import not_compiled
from proctor.compile.model import ANSWERS, ENCODER, Finding, Interval, Measured
from proctor.compile.subsets import break_evens
from proctor.compile.words import counted, listed, seconds, times_between, verb_and_seconds
from proctor.compile.worth import MATTERS, Worth, at_best, less_than_matters, worth

_WHOLES = (ENCODER, ANSWERS)
_LARGEST_LOG = 700.0
"""Of a factor that is a number at all."""


class _Decided(NamedTuple):
    decision: Literal["keep", "skip", "inconclusive"]
    reason: str


def decide(measured: Measured, target: str, time: Estimate | None) -> Finding:
    """The verdict on one target.

    Args:
        measured: what was measured.
        target: a target, the encoder or the answers.
        time: of the target; None where it was not timed.
    """
    decided = _by_outputs(measured, target) or _by_kind(measured, target, time)
    if time is None:
        decided = decided or _Decided("inconclusive", "it was not timed in both arms")
        return Finding(target=target, decision=decided.decision, reason=decided.reason)
    decided = decided or _by_speed(measured, target, time)
    open_ = decided.decision == "inconclusive" and _covers_zero(time.saved)
    return Finding(
        target=target,
        decision=decided.decision,
        reason=decided.reason,
        eager=time.interval(lambda seconds: seconds[..., 0]),
        compiled=time.interval(lambda seconds: seconds[..., 1]),
        saved=time.saved,
        speedup=speedup(time),
        break_even=break_evens(measured, [target], time.saved, time.shapes),
        more_rounds=time.more_rounds(_enough(measured, target)) if open_ else None,
    )


def speedup(time: Estimate) -> Interval | None:
    """Eager over compiled, with bounds of its logarithm; None where the clock shows no time at all."""
    if min(time.value.min(), time.draws.min()) <= 0:
        return None
    logarithm = time.interval(lambda seconds: np.log(seconds[..., 0]) - np.log(seconds[..., 1]))
    bounds = (logarithm.low, logarithm.value, logarithm.high)
    low, value, high = (None if one is None or abs(one) > _LARGEST_LOG else math.exp(one) for one in bounds)
    if value is None:
        return None
    return Interval(value) if low is None or high is None else Interval(value, low, high)


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


def _by_speed(measured: Measured, target: str, time: Estimate) -> _Decided:
    saved = time.saved
    if saved.low is None or saved.high is None:
        return _Decided("inconclusive", f"{_measured(time)}, without an interval")
    if saved.high < 0:
        return _Decided("skip", f"{_measured(time)}: it is slower{_dispatch(measured, target)}")
    late = _too_late(measured, target, time) or (_late_by_encoder(measured, target) if _covers_zero(saved) else "")
    if late:
        return _Decided("skip", f"{_measured(time)}: {late}")
    little = _too_little(measured, target, time, likely=not _covers_zero(saved))
    if little:
        return _Decided("skip", f"{_measured(time)}: {little}{_dispatch(measured, target)}")
    if _covers_zero(saved):
        return _in_noise(time, _enough(measured, target))
    missing = unchecked(measured, target, time.shapes)
    if missing:
        return _Decided("inconclusive", f"{_measured(time)}, but nobody compared its outputs at {listed(missing)}")
    return _Decided("keep", _measured(time))


def _in_noise(time: Estimate, enough: float) -> _Decided:
    more = time.more_rounds(enough)
    decide = (
        "more rounds will hardly decide"
        if more is None
        else (
            f"about {counted(more, 'more round')}, in {counted(more // time.rounds, 'more process')}, would decide on "
            "an effect of this size"
        )
    )
    return _Decided("inconclusive", f"{_measured(time)}: the noise is larger than the effect; {decide}")


def _too_little(measured: Measured, target: str, time: Estimate, *, likely: bool) -> str:
    """That no gain of it could matter, whatever the noise; empty where one could.

    Args:
        measured: what was measured.
        target: a target, or a whole: what that saves is what its targets save, which is often known better.
        time: of it.
        likely: whether it gains for certain: then only its share can speak against it.
    """
    both = (worth(measured, [target]), speedup(time)), (_of_parts(measured, target), None)
    known = [(held, factor) for held, factor in both if held is not None]
    for held, _ in known:
        if less_than_matters(held.share):
            most = 100 * (held.share.high or 0.0)
            return f"it takes {most:.2g} % of {held.whole} at most, too little to matter even if it took none"
    for held, factor in () if likely else known:
        best = at_best(held, factor)
        if best is not None and best < MATTERS:
            return f"at best {100 * best:.2g} % of {held.whole}, too little to matter"
    return ""


def _of_parts(measured: Measured, target: str) -> Worth | None:
    return worth(measured, list(measured.targets)) if target in _WHOLES else None


def _enough(measured: Measured, target: str) -> float:
    """Seconds of one unit of `target` that would matter; 0 where that is not known."""
    held = worth(measured, [target])
    return 0.0 if held is None else MATTERS * held.seconds


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
    return f"a run of {counted(measured.rows, 'row')} does not pay for compiling it: {loses}"


def _late_by_encoder(measured: Measured, target: str) -> str:
    """The answers save what their encoder saves, whose time has less noise in it."""
    encoder = estimate(measured, ENCODER) if target == ANSWERS else None
    return "" if encoder is None else _too_late(measured, ENCODER, encoder)


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
