"""The gate: whether a compiled target still computes what it did before, at every shape and on every way of calling it.

Each caught call is made eagerly and once in float64; then, for each level of the backend, compiled. The module is
compiled at the first call of the first shape, as a run would, and has to be right for all that follow: the other
shapes, a few rows fewer and more, other values at the same sizes, with optional inputs left out, and then the first
again. Where inputs can be left out the whole is done once more in reverse, on modules compiled anew: what a compiled
module keeps depends on what it saw first. Which outputs agree, `proctor.compile.rule` says.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from msgspec.structs import replace

from proctor.compile.captured import Caught
from proctor.compile.model import Agreement, Level
from proctor.compile.reference import Reference, first_line, made, references
from proctor.compile.rule import Judgement, judge, same_bits, worst
from proctor.compile.variants import given, variants

if TYPE_CHECKING:
    from proctor.engines.compiling.settings import Compile
    from proctor.engines.compiling.targets import Target
    from proctor.engines.compiling.watch import Watch

__all__ = ["LEVELS", "Appears", "Switch", "agreement", "appears", "gate", "gate_target", "in_place", "judge"]

LEVELS: tuple[Level, ...] = get_args(Level)
"""From the first to the last that a module goes through."""
_LIMIT = 64
"""Graphs that a target may have here: beyond a limit it would run eagerly and agree with itself."""
Switch = Callable[[Level], AbstractContextManager[Callable[[], str]]]
"""Compiles modules anew with the backend of this level; at the end of the block they run as they were written.

What the block is given says, when its calls are made, why they were not all calls of compiled code; empty if they were.
"""


class _Probe(NamedTuple):
    """One call with what it gave uncompiled; `left_out` is the optional input that it is without."""

    label: str
    call: Caught
    left_out: str
    eager: Any
    steady: bool


class Appears(NamedTuple):
    """The levels at which a target's outputs first differ from the eager ones in a bit, and beyond the rule."""

    differs: Level | None
    fails: Level | None


def gate_target(
    model: Any,
    target: Target,
    captured: Mapping[str, Sequence[Caught]],
    levels: Sequence[Level] = LEVELS,
    how: Compile | None = None,
) -> list[Agreement]:
    """One target of a model, compiled as the engine would; see `gate`.

    Args:
        model: in which nothing is compiled.
        target: of `proctor.engines.compiling.targets.find_targets`.
        captured: by the name of a shape, calls of its modules.
        levels: to try.
        how: as the engine is to compile it, but for the backend.
    """
    return gate(target.name, captured, in_place(model, [target], how), levels)


def gate(
    name: str, captured: Mapping[str, Sequence[Caught]], compiled: Switch, levels: Sequence[Level] = LEVELS
) -> list[Agreement]:
    """Agreements of one target at every shape, way of calling and level; a call that fails compiled is one that fails.

    Args:
        name: of the target.
        captured: by the name of a shape, calls of modules (of the target, or of what contains it); the first shape is
            the one the target is compiled for.
        compiled: see `Switch`.
        levels: to try.

    Raises:
        Exception: whatever a module raises at a caught call as it was written.
    """
    probes = _probes(captured)
    wide = references([probe.call for probe in probes])
    return [one for level in levels for one in _at_level(name, level, probes, wide, compiled)]


def agreement(
    name: str,
    shape: str,
    eager_call: Callable[[], Any],
    compiled_call: Callable[[], Any],
    reference_call: Callable[[], Any] | None,
    level: Level,
) -> Agreement:
    """The same for two callables: each arm is called twice, the reference once (None: there is none)."""
    eager = eager_call()
    steady = same_bits(eager, eager_call())
    outputs = [_output(compiled_call), _output(compiled_call)]
    reference = Reference(remark="none was given") if reference_call is None else Reference(reference_call())
    return _summary(name, shape, level, [_compared(eager, steady, outputs, reference)])


def appears(agreements: Iterable[Agreement], target: str) -> Appears:
    """At which level a target's outputs become others."""
    mine = [one for one in agreements if one.target == target]
    differs = [one.level for one in mine if one.bitwise < 1]
    fails = [one.level for one in mine if not one.passed]
    return Appears(min(differs, key=LEVELS.index, default=None), min(fails, key=LEVELS.index, default=None))


def in_place(model: Any, targets: Sequence[Target], how: Compile | None = None) -> Switch:
    """A switch that compiles as the transformers engine does; the backend is that of the level."""
    from proctor.engines.compiling.apply import compile_in_place, undo
    from proctor.engines.compiling.settings import Compile

    settings = how or Compile()
    limit = max(settings.recompile_limit, _LIMIT)

    @contextmanager
    def switch(level: Level) -> Iterator[Callable[[], str]]:
        watch = compile_in_place(model, targets, replace(settings, backend=level, recompile_limit=limit))
        try:
            yield lambda: _vacuous(watch)
        finally:
            undo(model, targets)

    return switch


def _vacuous(watch: Watch) -> str:
    """Why eager may have been compared with itself."""
    for name, seen in watch.counters.items():
        if seen.fallbacks:
            return f"{name} ran eagerly in part: {seen.fallbacks[0]}"
        if not seen.graphs:
            return f"{name} was not compiled: no graph was made, and both arms ran the same code"
    return ""


def _probes(captured: Mapping[str, Sequence[Caught]]) -> list[_Probe]:
    """Every caught call; at the first shape the variants of one call of each class of modules and way of calling it."""
    probes = []
    for shape, calls in captured.items():
        for call in calls:
            eager = made(call)
            probes.append(_Probe(shape, call, "", eager, same_bits(eager, made(call))))
    first = next(iter(captured), "")
    ways = {(type(call.module), given(call)): call for call in reversed(captured.get(first, ()))}
    return [*probes, *(one for call in reversed(ways.values()) for one in _variants(first, call))]


def _variants(shape: str, call: Caught) -> Iterator[_Probe]:
    for variant in variants(call):
        for changed in variant.tries:
            if not isinstance(eager := _output(changed), Exception):  # the module takes it
                again = same_bits(eager, made(changed))
                yield _Probe(f"{shape}, {variant.label}", changed, variant.left_out, eager, again)
                break


def _at_level(
    name: str, level: Level, probes: Sequence[_Probe], wide: Sequence[Reference], compiled: Switch
) -> list[Agreement]:
    order = list(range(len(probes)))
    orders = [order, order[::-1]] if any(probe.left_out for probe in probes) else [order]
    found: dict[str, list[_Found]] = {}
    for some in orders:
        with compiled(level) as trouble:
            outputs = [_output(probes[number].call) for number in [*some, *some]]
            vacuous = trouble()
        for place, number in enumerate(some):
            probe = probes[number]
            both = [outputs[place], outputs[place + len(some)]]
            one = _compared(probe.eager, probe.steady, both, wide[number])
            one = one._replace(remark=vacuous or one.remark)
            found.setdefault(probe.label, []).append(_explained(one, both[0], probe, probes))
    return [_summary(name, label, level, some) for label, some in found.items()]


class _Found(NamedTuple):
    judgement: Judgement
    steady_eager: bool
    steady_compiled: bool
    remark: str = ""


def _output(call: Callable[[], Any] | Caught) -> Any:
    """What a call gives; the exception where it fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own; what it does is judged by what comes out
        try:
            return made(call) if isinstance(call, Caught) else call()
        except Exception as error:
            return error


def _compared(eager: Any, steady: bool, compiled: Sequence[Any], reference: Reference) -> _Found:
    """One call's output against what two calls of the compiled arm gave."""
    for output in compiled:
        if isinstance(output, Exception):
            return _Found(Judgement(f"the compiled call failed: {first_line(output)}"), steady, False)
    remark = reference.remark
    if reference.output is None:
        remark = f"no reference in higher precision: {remark}"
    judgements = [judge(eager, output, reference.output) for output in compiled]
    repeats = same_bits(*compiled)
    found = worst(judgements) if not repeats else judgements[0]
    if found.passed and steady and not repeats:
        found = found._replace(reason="the compiled module does not repeat its own output, the eager one does")
    return _Found(found, steady, repeats, remark)


def _explained(found: _Found, output: Any, probe: _Probe, probes: Sequence[_Probe]) -> _Found:
    """A failure, with the optional input named that the compiled module seems not to have been given."""
    if found.judgement.passed or isinstance(output, Exception) or probe.left_out:
        return found
    for other in probes:
        mine = other.left_out and other.label == f"{probe.label}, without {other.left_out}"
        if mine and other.call.module is probe.call.module and judge(other.eager, output).passed:
            reason = f"as if {other.left_out} had not been passed: {found.judgement.reason}"
            return found._replace(judgement=found.judgement._replace(reason=reason))
    return found


def _summary(name: str, shape: str, level: Level, found: Sequence[_Found]) -> Agreement:
    """Several calls at one shape as one line."""
    total = worst([one.judgement for one in found])
    return Agreement(
        target=name,
        shape=shape,
        level=level,
        error_eager=total.error_eager,
        error_compiled=total.error_compiled,
        bitwise=total.bitwise,
        largest=total.largest,
        steady_eager=all(one.steady_eager for one in found),
        steady_compiled=all(one.steady_compiled for one in found),
        passed=total.passed,
        reason=total.reason or next((one.remark for one in found if one.remark), ""),
    )
