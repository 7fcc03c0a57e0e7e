"""What is said of a bench of compilation in the terminal."""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.cli.output import escaped, stdout, table
from proctor.compile.breakeven import CACHES
from proctor.compile.model import Compilation, Finding, Measured, Subset, Verdict
from proctor.compile.verdict import exit_code
from proctor.compile.words import listed, relative, rows, seconds, seconds_between, times_between, verb_and_seconds

_COLOURS = {0: "green", 3: "yellow", 4: "yellow"}
_SUBSETS = 8


def verdict_json(found: Verdict) -> dict[str, Any]:
    """The verdict as plain data, with the command's exit code."""
    data: dict[str, Any] = msgspec.to_builtins(found)
    return {"exit_code": exit_code(found), **data}


def show_verdict(measured: Measured, found: Verdict) -> None:
    """The sentence first, then target by target, what the encoder's share allows, and what is doubtful."""
    stdout.print(f"[bold {_COLOURS[exit_code(found)]}]{escaped(found.sentence)}[/]\n", soft_wrap=True)
    timed = [(one, one.eager, one.compiled) for one in found.findings]
    lines: list[tuple[str, ...]] = [
        (
            one.target,
            one.decision,
            "-" if eager is None else seconds(eager.value),
            "-" if compiled is None else seconds(compiled.value),
            "-" if one.saved is None else seconds_between(one.saved),
            "-" if one.speedup is None else times_between(one.speedup),
        )
        for one, eager, compiled in timed
    ]
    if found.unaccounted:
        lines.append(("in no target", "", *(seconds(found.unaccounted[arm]) for arm in ("eager", "compiled")), "", ""))
    columns = ["target", "verdict", "eager", "compiled", "saved a unit", "speed-up"]
    stdout.print(table(columns, lines, title="seconds of one unit of the workload, with 95 % intervals"))
    _show_compilations(measured)
    _show_subsets(found)
    for cache in CACHES:
        _show_break_even(found, cache)
    if found.amdahl is not None:
        stdout.say(f"end to end: {found.amdahl.reason}", style="yellow" if found.amdahl.flagged else None)
    for title, texts in (
        ("why", [f"{one.target}: {one.reason}" for one in found.findings]),
        ("doubtful", [flag for flag in found.flags if not found.amdahl or found.amdahl.reason not in flag]),
        ("not measured", list(measured.notes)),
    ):
        if texts:
            stdout.say(title, style="bold")
            for text in texts:
                stdout.say(f"  {text}")


def _show_compilations(measured: Measured) -> None:
    lines = [
        (one.target, one.process, one.cache, seconds(one.seconds), one.graphs, *_counts(one))
        for one in measured.compilations
    ]
    if lines:
        columns = ["target", "process", "cache", "compiling", "graphs", "breaks", "recompiles", "fallbacks", "hits"]
        stdout.print(table(columns, lines, title="what compiling takes"))


def _counts(one: Compilation) -> tuple[int, int, int, str]:
    looked_up = one.cache_hits + one.cache_misses
    return len(one.breaks), len(one.recompiles), len(one.fallbacks), f"{one.cache_hits} of {looked_up}"


def _show_subsets(found: Verdict) -> None:
    if len(found.subsets) < 2:
        return
    lines = [(listed(one.targets), _share(found, one), seconds_between(one.saves)) for one in found.subsets[:_SUBSETS]]
    stdout.print(table(["compiled together", "of the encoder", "saved a unit"], lines))


def _share(found: Verdict, one: Subset) -> str:
    encoder = next((f.eager for f in found.findings if f.target == "encoder" and f.eager), None)
    return "-" if encoder is None or encoder.value <= 0 else relative(one.saves.value / encoder.value)


def _show_break_even(found: Verdict, cache: str) -> None:
    paid = [_break_even(one, cache) for one in found.findings if cache in one.break_even]
    if paid:
        stdout.say(f"break-even with a {cache} cache: {'; '.join(paid)}")
    if cache in found.net:
        open_ = "not certain" if found.net[cache].low is not None else "by the bare values, without an interval"
        worth = {True: "worth it", False: "not worth it", None: open_}[found.worth_it.get(cache)]
        net = verb_and_seconds(found.net[cache], ("gains", "loses"))
        stdout.say(f"the planned run, with a {cache} cache: {net}: {worth}")


def _break_even(one: Finding, cache: str) -> str:
    return f"{one.target} {rows(one.break_even[cache])}"
