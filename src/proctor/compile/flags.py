"""What makes the figures of a bench doubtful, one line each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from proctor.compile.breakeven import CACHES
from proctor.compile.estimate import Estimate, paired
from proctor.compile.model import Amdahl, Compilation, Measured, Timing
from proctor.compile.words import counted, listed, times

_COLD = 1.5
"""A first measured round this much slower than the median of the others was not warm."""
_MOSTLY = 2 / 3
_COVERED = 0.995


def flags_of(measured: Measured, estimates: dict[str, Estimate], checked: Amdahl | None) -> tuple[str, ...]:
    """All of them, the gravest first."""
    found = [
        *_gates(measured),
        *_compilations(measured),
        *([f"end to end: {checked.reason}"] if checked and checked.flagged else []),
        *_timings(measured, estimates),
        *_answers(measured),
        *_costs(measured),
    ]
    return tuple(dict.fromkeys(found))


def not_compiled(measured: Measured, target: str) -> list[int]:
    """Processes in which compiling `target` made no graph at all, so that both arms ran the same code."""
    by_process: dict[int, int] = defaultdict(int)
    for one in measured.compilations:
        if one.target == target:
            by_process[one.process] += 1 if one.graphs is None else one.graphs  # not known is not none
    return sorted(process for process, graphs in by_process.items() if graphs == 0)


def left_out(measured: Measured, target: str) -> bool:
    """Whether `target` could not be compiled, and was not timed: the compiled arm then ran without it."""
    return bool(not_compiled(measured, target)) and all(one.target != target for one in measured.timings)


def _gates(measured: Measured) -> Iterator[str]:
    for one in measured.agreements:
        if not one.passed:
            yield f"{one.target}: other outputs at {one.shape} ({one.level}): {one.reason or 'they do not agree'}"
    for one in measured.agreements:
        unsteady = [
            arm for arm, steady in (("eager", one.steady_eager), ("compiled", one.steady_compiled)) if not steady
        ]
        if unsteady:
            yield f"{one.target}: the same call again gave other bits ({listed(unsteady)}, at {one.shape})"


def _compilations(measured: Measured) -> Iterator[str]:
    seen = list(dict.fromkeys(one.target for one in measured.compilations))
    for target in seen:
        mine = [one for one in measured.compilations if one.target == target]
        absent = not_compiled(measured, target)
        if absent:
            processes = (
                "in no process" if len(absent) == len({c.process for c in mine}) else f"not in process {absent[0]}"
            )
            yield f"{target}: not compiled ({processes} was a graph made): both arms ran the same code"
        for what, lines in (
            ("ran eagerly after a limit was hit", _lines(mine, "fallbacks")),
            ("was compiled anew", _lines(mine, "recompiles")),
            ("has graph breaks", _lines(mine, "breaks")),
        ):
            if lines:
                more = f", and {len(lines) - 1} more" if len(lines) > 1 else ""
                yield f"{target}: {what}: {lines[0]}{more}"


def _lines(compilations: list[Compilation], what: str) -> list[str]:
    return list(dict.fromkeys(line for one in compilations for line in getattr(one, what)))


def _timings(measured: Measured, estimates: dict[str, Estimate]) -> Iterator[str]:
    timed = list(dict.fromkeys(one.target for one in measured.timings))
    warmed = {one.target for one in measured.timings if one.round < 0}
    bare = [target for target in timed if target not in warmed]
    if bare:
        yield f"no warm-up is recorded for {listed(bare)}: first calls may be among the measured ones"
    for target in timed:
        for arm, cold in _cold_starts(measured.timings, target).items():
            first = f"the first measured round ({arm}) takes {times(cold)} the others"
            yield f"{target}: {first}: the warm-up was too short"
        lost = _unpaired(measured.timings, target)
        if lost:
            yield f"{target}: left out, with one arm only: {counted(lost, 'round')}"
    for target, one in estimates.items():
        if one.covered < _COVERED:
            yield f"{target}: timed at shapes of {100 * one.covered:.0f} % of the rows only"
    clocks = {one.clock for one in measured.timings}
    if len(clocks) > 1:
        yield f"timed by different clocks: {listed(sorted(clocks))}"


def _cold_starts(timings: tuple[Timing, ...], target: str) -> dict[str, float]:
    """By arm, how much slower than the median of the rest its first round is, where it is so nearly everywhere.

    That is: the median over processes and shapes with three rounds or more is above `_COLD`, and in most of them no
    other round is as slow. A round that is slow for another reason is seldom always the first.
    """
    cells = [pairs for by in paired(timings, target).values() for pairs in by.values() if len(pairs) >= 3]
    rest = [np.median(pairs[1:], axis=0) for pairs in cells]
    if not cells or min(one.min() for one in rest) <= 0:
        return {}
    factor = np.median([pairs[0] / one for pairs, one in zip(cells, rest, strict=True)], axis=0)
    slowest = np.mean([pairs[0] > pairs[1:].max(axis=0) for pairs in cells], axis=0)
    arms = zip(("eager", "compiled"), factor, slowest, strict=True)
    return {arm: float(by) for arm, by, share in arms if by > _COLD and share >= _MOSTLY}


def _unpaired(timings: tuple[Timing, ...], target: str) -> int:
    mine = [one for one in timings if one.target == target and one.round >= 0]
    by_arm = [{(one.process, one.shape, one.round) for one in mine if one.arm == arm} for arm in ("eager", "compiled")]
    return len(by_arm[0] ^ by_arm[1])


def _answers(measured: Measured) -> Iterator[str]:
    for one in measured.answers:
        if one.changed:
            yield f"{one.target}: {len(one.changed)} of {one.probes} answers to probes differ when it is compiled"
        if not one.passed:
            yield f"{one.target}: the answers do not pass: {one.reason}"
        if not (one.steady_eager and one.steady_compiled):
            yield f"{one.target}: an arm does not repeat its own answers, so they tell nothing of the other"


def _costs(measured: Measured) -> Iterator[str]:
    if measured.timings and not measured.compilations:
        yield "what compiling takes was not measured: no break-even"
    for cache in CACHES:
        mine = [one.target for one in measured.compilations if one.cache == cache]
        once = [target for target in dict.fromkeys(mine) if mine.count(target) == 1]
        if once:
            yield f"compiling with a {cache} cache was measured once ({listed(once)}): no interval has its noise in it"
