"""From everything that a bench has seen to what to do. Pure: the same figures give the same verdict."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from proctor.compile.amdahl import amdahl
from proctor.compile.breakeven import CACHES, ahead, compile_seconds, net_gain, scaled
from proctor.compile.decision import decide
from proctor.compile.estimate import Estimate, estimate, units_per_row
from proctor.compile.flags import flags_of, left_out
from proctor.compile.model import ANSWERS, ENCODER, Finding, Interval, Measured, Verdict
from proctor.compile.sentence import sentence
from proctor.compile.subsets import estimates_of, subset, subsets_of, unaccounted
from proctor.compile.words import listed


def verdict(measured: Measured) -> Verdict:
    """What to do, by the figures; never raises for figures that `proctor.compile.store.read_bench` accepts.

    A target is kept only if it is faster by an interval over processes that excludes zero, its outputs were compared at
    every shape it was timed at, no comparison failed, it was compiled in every process, and it can pay for itself in
    the planned run.
    """
    everything, measured = measured, _tried(measured)
    names = [*everything.targets, *(name for name in (ENCODER, ANSWERS) if name not in everything.targets)]
    times = {name: found for name in names if (found := estimate(measured, name))}
    findings = tuple(
        decide(measured, name, times.get(name)) for name in names if name in everything.targets or name in times
    )
    best = _best(measured, findings)
    of, saved, shapes = _of(measured, best, times)
    net = _net(measured, of, saved, shapes)
    rest = unaccounted(measured)
    checked = amdahl(measured)
    concluded = Verdict(
        sentence="",
        findings=findings,
        best=best,
        best_saves=_best_saves(measured, best, times),
        unaccounted={arm: rest[arm].value for arm in ("eager", "compiled") if arm in rest},
        amdahl=checked,
        worth_it={cache: ahead(net[cache]) if cache in net else None for cache in CACHES},
        net=net,
        net_of=of,
        subsets=subsets_of(measured),
        flags=(*flags_of(measured, times, checked), *_elsewhere(rest), *_against(measured, findings)),
    )
    return replace(concluded, sentence=sentence(everything, concluded))


def _tried(measured: Measured) -> Measured:
    """Without the targets that could not be compiled: what they take is in none of the targets."""
    return replace(measured, targets={t: n for t, n in measured.targets.items() if not left_out(measured, t)})


def exit_code(found: Verdict) -> int:
    """0: compile something; 4: do not; 3: could not tell."""
    if found.best:
        loses = [worth for worth in found.worth_it.values() if worth is not None]
        return 4 if loses and not any(loses) else 0
    return 3 if any(one.decision == "inconclusive" for one in found.findings) or not found.findings else 4


def _decision(findings: Sequence[Finding], target: str) -> str:
    return next((one.decision for one in findings if one.target == target), "")


def _best(measured: Measured, findings: tuple[Finding, ...]) -> tuple[str, ...]:
    """The targets that are kept; where they were timed as a whole only, all of them if that is kept.

    What was measured end to end with exactly these compiled beats the sum of the parts.
    """
    timed = {one.target for one in measured.timings}
    if not any(name in timed for name in measured.targets):
        whole = _decision(findings, ANSWERS) or _decision(findings, ENCODER)
        return tuple(measured.targets) if whole == "keep" else ()
    best = tuple(name for name in measured.targets if _decision(findings, name) == "keep")
    if len(best) == len(measured.targets) and "skip" in (_decision(findings, ENCODER), _decision(findings, ANSWERS)):
        return ()
    return best


def _best_saves(measured: Measured, best: tuple[str, ...], times: dict[str, Estimate]) -> float:
    parts = estimates_of(measured, [name for name in best if name in times])
    if best and set(parts) == set(best):
        return subset(measured, parts, best).saves.value
    return times[ENCODER].saved.value if best and ENCODER in times else 0.0


def _of(
    measured: Measured, best: tuple[str, ...], times: dict[str, Estimate]
) -> tuple[tuple[str, ...], Interval | None, tuple[str, ...]]:
    """What the planned run would compile, what that saves in one unit, and over which shapes that was timed.

    Of everything that the compiled arm had compiled the answers say most, then the encoder; of a part, its timings.
    """
    if best and len(best) < len(measured.targets):
        parts = estimates_of(measured, best)
        if set(parts) == set(best):
            return best, subset(measured, parts, best).saves, next(iter(parts.values())).shapes
    whole = next((times[name] for name in (ANSWERS, ENCODER) if name in times), None)
    if whole is not None:
        return tuple(measured.targets), whole.saved, whole.shapes
    parts = estimates_of(measured, list(measured.targets))
    if not parts:
        return (), None, ()
    return tuple(parts), subset(measured, parts, tuple(parts)).saves, next(iter(parts.values())).shapes


def _net(
    measured: Measured, of: tuple[str, ...], saved: Interval | None, shapes: tuple[str, ...]
) -> dict[str, Interval]:
    if measured.rows is None or saved is None:
        return {}
    per_row = scaled(saved, units_per_row(measured, shapes))
    costs = {cache: compile_seconds(measured, of, cache) for cache in CACHES}
    return {cache: net_gain(cost, per_row, measured.rows) for cache, cost in costs.items() if cost is not None}


def _elsewhere(rest: dict[str, Interval]) -> list[str]:
    """A gain of the encoder that lies in none of its targets was not made by compiling them."""
    saved = rest.get("saved")
    if saved is None or saved.low is None or saved.high is None or saved.low <= 0 <= saved.high:
        return []
    return [
        "the part of the encoder that is in no target has another time in the two arms: something else changed, too"
    ]


def _against(measured: Measured, findings: tuple[Finding, ...]) -> list[str]:
    """Targets that gain while the whole loses."""
    kept = [name for name in measured.targets if _decision(findings, name) == "keep"]
    losing = [one for one in findings if one.target in (ENCODER, ANSWERS) and one.decision == "skip" and one.saved]
    return [
        f"{listed(kept)} alone gains, but with everything compiled {one.target} {one.reason}" for one in losing if kept
    ]
