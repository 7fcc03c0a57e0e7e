"""Everything that the page of a bench of compilation shows, gathered before a line of HTML is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from proctor.compile.model import Agreement, Compilation, Finding, Measured, ProbeAnswers, Subset, Verdict
from proctor.compile.verdict import exit_code
from proctor.compile.words import listed, relative, rows, seconds, seconds_between, times_between, verb_and_seconds
from proctor.view.charts.forest import Chart, Factor, forest_chart
from proctor.view.compile_shapes import ShapeLine, WarmUp, shape_lines, warm_ups
from proctor.view.formats import NOTHING, percent, whole
from proctor.view.verdict import Tone

_TONES: dict[str, Tone] = {"keep": "good", "skip": "open", "inconclusive": "warn"}
_HEADLINES: dict[int, tuple[Tone, str]] = {
    0: ("good", "Compile"),
    3: ("open", "Could not tell"),
    4: ("warn", "Do not compile"),
}
_WORTH = {True: "comes out ahead", False: "does not come out ahead", None: "may come out either way"}


class TargetLine(NamedTuple):
    """One target as the table shows it."""

    name: str
    modules: str
    decision: str
    tone: str
    eager: str
    compiled: str
    saved: str
    speedup: str
    reason: str


class Paid(NamedTuple):
    """When one target has paid, by cache."""

    name: str
    cold: str
    warm: str


class Net(NamedTuple):
    """What the planned run gains with one kind of cache."""

    cache: str
    gains: str
    worth: str


class CompilationLine(NamedTuple):
    """What compiling one target took in one process."""

    name: str
    process: int
    cache: str
    seconds: str
    counts: str
    hits: str
    memory: str
    lines: tuple[str, ...]


class AgreementLine(NamedTuple):
    """Outputs of one target at one shape."""

    name: str
    shape: str
    level: str
    errors: str
    bitwise: str
    passed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class CompileView:
    """A bench as its page shows it.

    Attributes:
        sentence: the verdict's, without what the headline says already.
        facts: what was measured and where, as (label, value).
        unaccounted: seconds eager and compiled that lie in no target; None where that is not known.
        subsets: as (targets, of the encoder, saved).
        cost_of: what the planned run would compile.
        overheads: of a compiled call, as (target, seconds, kernels or operators eager, compiled).
        probes: answers of whole engines that differ, as (target, of how many, request, eager, compiled, nats apart).
    """

    name: str
    tone: Tone
    headline: str
    sentence: str
    exit_code: int
    verdict: Verdict
    facts: list[tuple[str, str]]
    targets: list[TargetLine]
    unaccounted: tuple[str, str] | None
    chart: Chart | None
    subsets: list[tuple[str, str, str]]
    paid: list[Paid]
    nets: list[Net]
    cost_of: str
    rows: str
    compilations: list[CompilationLine]
    overheads: list[tuple[str, str, str, str]]
    shapes: list[ShapeLine]
    warm_ups: list[WarmUp]
    agreements: list[AgreementLine]
    probes: list[tuple[str, int, str, str, str, str]]
    notes: tuple[str, ...]


def gather(measured: Measured, verdict: Verdict) -> CompileView:
    """What the page shows."""
    code = exit_code(verdict)
    tone, headline = _HEADLINES[code]
    rest = verdict.unaccounted
    return CompileView(
        name=f"{measured.subject.get('model', 'A model')} on {measured.subject.get('engine', 'an engine')}",
        tone=tone,
        headline=headline,
        sentence=verdict.sentence.removeprefix(f"{headline}. "),
        exit_code=code,
        verdict=verdict,
        facts=[(str(name), _said(value)) for name, value in measured.subject.items()],
        targets=[_target(measured, one) for one in verdict.findings],
        unaccounted=(seconds(rest["eager"]), seconds(rest["compiled"])) if rest else None,
        chart=forest_chart([factor for one in verdict.findings for factor in _factor(one)]),
        subsets=[_subset(verdict, one) for one in verdict.subsets] if len(verdict.subsets) > 1 else [],
        paid=[_paid(one) for one in verdict.findings if one.break_even],
        nets=[_net(verdict, cache) for cache in verdict.net],
        cost_of=listed(verdict.net_of),
        rows=NOTHING if measured.rows is None else whole(measured.rows),
        compilations=[_compilation(one) for one in measured.compilations],
        overheads=[
            (one.target, seconds(one.seconds), _count(one.kernels, "eager"), _count(one.kernels, "compiled"))
            for one in measured.dispatches
        ],
        shapes=shape_lines(measured),
        warm_ups=warm_ups(measured),
        agreements=[_agreement(one) for one in measured.agreements],
        probes=[line for one in measured.answers for line in _probes(one)],
        notes=measured.notes,
    )


def _said(value: object) -> str:
    return ", ".join(f"{key} {inner}" for key, inner in value.items()) if isinstance(value, dict) else str(value)


def _target(measured: Measured, one: Finding) -> TargetLine:
    modules = measured.targets.get(one.target)
    return TargetLine(
        name=one.target,
        modules="" if modules is None else f"{modules} modules" if modules != 1 else "1 module",
        decision=one.decision,
        tone=_TONES[one.decision],
        eager=NOTHING if one.eager is None else seconds_between(one.eager),
        compiled=NOTHING if one.compiled is None else seconds_between(one.compiled),
        saved=NOTHING if one.saved is None else seconds_between(one.saved),
        speedup=NOTHING if one.speedup is None else times_between(one.speedup),
        reason=one.reason,
    )


def _factor(one: Finding) -> list[Factor]:
    if one.speedup is None:
        return []
    told = f"{one.target}: {times_between(one.speedup)}"
    return [Factor(one.target, one.speedup.value, one.speedup.low, one.speedup.high, _TONES[one.decision], told)]


def _subset(verdict: Verdict, one: Subset) -> tuple[str, str, str]:
    encoder = next((f.eager for f in verdict.findings if f.target == "encoder" and f.eager), None)
    share = NOTHING if encoder is None or encoder.value <= 0 else relative(one.saves.value / encoder.value)
    return listed(one.targets), share, seconds_between(one.saves)


def _paid(one: Finding) -> Paid:
    cold, warm = (rows(one.break_even[cache]) if cache in one.break_even else NOTHING for cache in ("cold", "warm"))
    return Paid(one.target, cold, warm)


def _net(verdict: Verdict, cache: str) -> Net:
    net = verdict.net[cache]
    worth = _WORTH[verdict.worth_it.get(cache)] if net.low is not None else "by the bare values, without an interval"
    return Net(cache, verb_and_seconds(net, ("gains", "loses")), worth)


def _compilation(one: Compilation) -> CompilationLine:
    counts = (("graph", one.graphs or 0), ("break", len(one.breaks)), ("recompile", len(one.recompiles)))
    told = [f"{number} {what}{'' if number == 1 else 's'}" for what, number in counts if number is not None]
    told = ["graphs are not known"] if one.graphs is None else told
    told += [f"{len(one.fallbacks)} fell back to eager"] if one.fallbacks else []
    looked_up = one.cache_hits + one.cache_misses
    return CompilationLine(
        name=one.target,
        process=one.process,
        cache=one.cache,
        seconds=seconds(one.seconds),
        counts=", ".join(told),
        hits=f"{one.cache_hits} of {looked_up}" if looked_up else NOTHING,
        memory=NOTHING if one.memory is None else f"{one.memory / 1e6:,.1f} MB",
        lines=(*one.fallbacks, *one.recompiles, *one.breaks),
    )


def _count(kernels: dict[str, int] | None, arm: str) -> str:
    return NOTHING if kernels is None or arm not in kernels else whole(kernels[arm])


def _agreement(one: Agreement) -> AgreementLine:
    unsteady = [arm for arm, ok in (("eager", one.steady_eager), ("compiled", one.steady_compiled)) if not ok]
    again = f"not the same again: {listed(unsteady)}" if unsteady else ""
    return AgreementLine(
        name=one.target,
        shape=one.shape,
        level=one.level,
        errors=f"{_error(one.error_eager)} eager, {_error(one.error_compiled)} compiled",
        bitwise=percent(one.bitwise),
        passed=one.passed,
        reason="; ".join(filter(None, (one.reason, again))),
    )


def _probes(one: ProbeAnswers) -> Iterator[tuple[str, int, str, str, str, str]]:
    """Changed answers, each with how far apart the two likeliest tokens were."""
    for answers, margin in zip_longest(one.changed, one.margins[: len(one.changed)]):
        yield one.target, one.probes, *answers, NOTHING if margin is None else f"{margin:.2g}"


def _error(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2g}"
