"""May these two traces be compared, and what must then not be concluded?"""

from __future__ import annotations

import filecmp
from collections.abc import Iterator
from enum import StrEnum

import msgspec

from proctor.trace.diff.repeats import Iterations
from proctor.trace.diff.sides import Kind, Side
from proctor.trace.model import GraphMode, Severity


class Basis(StrEnum):
    """What a conclusion rests on, and what a difference between the captures can take from it."""

    NAMES = "names"
    COUNTS = "counts"
    TIMES = "times"
    IDLE = "idle"
    API = "api"


class Level(StrEnum):
    """What may be concluded at all."""

    SAME = "same content"
    COMPARABLE = "comparable"
    LIMITED = "comparable with limits"
    REFUSED = "refused"


class Limit(msgspec.Struct, frozen=True):
    """A difference between the captures themselves that a conclusion must bear in mind.

    Attributes:
        code: stable, for machines.
        what: the difference.
        meaning: what it takes from the comparison.
        bars: bases that no conclusion may rest on because of it.
    """

    code: str
    what: str
    meaning: str
    bars: tuple[Basis, ...] = ()


class Fact(msgspec.Struct, frozen=True):
    """What was looked at, on both sides."""

    what: str
    a: str
    b: str
    same: bool


class Comparability(msgspec.Struct, frozen=True, kw_only=True):
    """The check that comes before any difference.

    Attributes:
        level: what may be concluded.
        reasons: why it is refused; empty otherwise.
        limits: what lowers the verdict.
        facts: everything that was looked at.
    """

    level: Level
    reasons: tuple[str, ...] = ()
    limits: tuple[Limit, ...] = ()
    facts: tuple[Fact, ...] = ()

    def bars(self, basis: Basis) -> bool:
        """Whether conclusions may not rest on this."""
        return any(basis in limit.bars for limit in self.limits)


_IN_COMMON = 0.2
_WINDOW_RATIO = 1.05
"""Windows whose lengths differ by less hold the same time, for what a total can say."""


def comparability(a: Side, b: Side, iterations: Iterations | None) -> Comparability:
    """Looks at everything about the captures that could pass for a difference of the program."""
    facts = tuple(_facts(a, b, iterations))
    reasons = tuple(
        f"{label} has no GPU work: {_why_empty(side)}" for label, side in (("A", a), ("B", b)) if not _has_work(side)
    )
    if reasons:
        return Comparability(level=Level.REFUSED, reasons=reasons, facts=facts)
    if same_content(a, b):
        return Comparability(level=Level.SAME, facts=facts)
    limits = (*_machines(a, b), *_captures(a, b), *_programs(a, b), *_windows(a, b, iterations))
    level = Level.LIMITED if any(limit.bars for limit in limits) else Level.COMPARABLE
    return Comparability(level=level, limits=limits, facts=facts)


def same_content(a: Side, b: Side) -> bool:
    """Whether both files are the same, byte for byte."""
    one, two = a.trace.path, b.trace.path
    return one.stat().st_size == two.stat().st_size and filecmp.cmp(one, two, shallow=False)


def _has_work(side: Side) -> bool:
    return any(kind in (Kind.KERNEL, Kind.GRAPH) for kind, _ in side.works)


def _why_empty(side: Side) -> str:
    note = next((note for note in side.trace.notes if note.severity is Severity.ERROR), None)
    return note.what if note else "no kernel and no CUDA graph ran in its window"


def _gpus(side: Side) -> tuple[str, ...]:
    """The models of the GPUs that kernels ran on; empty names where the trace does not say."""
    return tuple({gpu.uuid or (gpu.process, gpu.device): gpu.name for gpu in side.gpus}.values())


def _facts(a: Side, b: Side, iterations: Iterations | None) -> Iterator[Fact]:
    def fact(what: str, one: object, two: object) -> Fact:
        return Fact(what, str(one), str(two), str(one) == str(two))

    yield fact("written by", a.trace.tool or a.trace.origin, b.trace.tool or b.trace.origin)
    yield fact("schema", a.trace.schema or "-", b.trace.schema or "-")
    yield fact("GPUs", _models(_gpus(a)), _models(_gpus(b)))
    if a.trace.driver or b.trace.driver:
        yield fact("driver", a.trace.driver or "unknown", b.trace.driver or "unknown")
    yield fact("processes with kernels", a.ranks, b.ranks)
    yield fact("CUDA graphs captured as", a.trace.graph_mode, b.trace.graph_mode)
    yield fact("window of GPU work", f"{_length(a) / 1e6:,.2f} ms", f"{_length(b) / 1e6:,.2f} ms")
    yield fact("kernels launched before the window", a.cut, b.cut)
    if iterations is not None:
        yield fact(f"repetitions ({iterations.what})", iterations.a, iterations.b)


def _models(names: tuple[str, ...]) -> str:
    if not any(names):
        return f"{len(names)} x [not in the trace]"
    return ", ".join(f"{names.count(name)} x {name or '[unnamed]'}" for name in sorted(set(names)))


def _length(side: Side) -> int:
    return side.span[1] - side.span[0]


def _machines(a: Side, b: Side) -> Iterator[Limit]:
    one, two = _gpus(a), _gpus(b)
    if set(one) != set(two):
        known = all(one) and all(two)
        yield Limit(
            "gpu_models" if known else "gpu_unknown",
            f"A ran on {_models(one)}, B on {_models(two)}",
            "times per launch, launch shapes and the choice of kernels follow the GPU"
            if known
            else "whether the GPUs are the same cannot be checked on both sides",
            (Basis.TIMES, Basis.NAMES, Basis.IDLE) if known else (Basis.TIMES,),
        )
    elif not any(one):
        yield Limit("gpu_unknown", "neither trace says its GPUs", "that they are the same model is taken on trust")
    if len(one) != len(two) or a.ranks != b.ranks:
        yield Limit(
            "ranks",
            f"A has {a.ranks} processes on {len(one)} GPUs, B {b.ranks} on {len(two)}",
            "work is spread otherwise: totals and counts are no measure of it",
            (Basis.COUNTS, Basis.IDLE),
        )
    if a.trace.driver and b.trace.driver and a.trace.driver != b.trace.driver:
        yield Limit("driver", f"driver {a.trace.driver}, then {b.trace.driver}", "a difference may be the driver's")


def _captures(a: Side, b: Side) -> Iterator[Limit]:
    if a.trace.origin is not b.trace.origin:
        yield Limit(
            "origins",
            f"A was written by {a.trace.origin}, B by {b.trace.origin}",
            "the tools slow the CPU down differently and name API calls and kinds of memory differently",
            (Basis.IDLE, Basis.API),
        )
    elif a.trace.schema != b.trace.schema or a.trace.tool != b.trace.tool:
        yield Limit("tools", f"{a.trace.tool}, then {b.trace.tool}", "figures mean the same in both")
    graphs = [any(kind is Kind.GRAPH for kind, _ in side.works) for side in (a, b)]
    if graphs[0] != graphs[1]:
        yield Limit(
            "graphs",
            f"{'A' if graphs[0] else 'B'} holds whole CUDA graphs without their kernels, the other side does not",
            "kernels inside graphs are missing on one side; capture both with --cuda-graph-trace=node",
            (Basis.COUNTS, Basis.NAMES, Basis.TIMES),
        )
    elif all(graphs):
        yield Limit(
            "graphs_unresolved",
            "kernels inside CUDA graphs were not recorded",
            "names and counts cover only what ran outside of graphs; capture with --cuda-graph-trace=node",
            (Basis.NAMES, Basis.COUNTS),
        )
    elif a.trace.graph_mode is not b.trace.graph_mode and GraphMode.UNKNOWN not in (
        a.trace.graph_mode,
        b.trace.graph_mode,
    ):
        yield Limit(
            "graph_modes",
            f"graphs were captured by {a.trace.graph_mode} in A, by {b.trace.graph_mode} in B",
            "recording nodes one by one costs time",
        )


def _programs(a: Side, b: Side) -> Iterator[Limit]:
    """Two programs that have hardly a kernel in common differ in more than a setting."""
    shared = [key for key in a.works if key in b.works and key[0] is Kind.KERNEL]
    times = [(sum(side.works[key].amount.total for key in shared), side.amount(Kind.KERNEL).total) for side in (a, b)]
    shares = [time / total if total else 0.0 for time, total in times]
    if any(total for _, total in times) and max(shares) < _IN_COMMON:
        yield Limit(
            "programs",
            f"kernels that both sides have take {shares[0]:.0%} of A's and {shares[1]:.0%} of B's kernel time",
            "these may be two programs, not one that changed",
            tuple(Basis),
        )


def _windows(a: Side, b: Side, iterations: Iterations | None) -> Iterator[Limit]:
    if a.cut or b.cut:
        yield Limit(
            "cut",
            f"the windows were cut out of longer runs: {a.cut:,} and {b.cut:,} kernels were launched before them",
            "the iterations at the edges are partial, and whether the rest of the runs differs alike is not known",
            (Basis.IDLE,),
        )
    one, two = _length(a), _length(b)
    longer = max(one, two) > _WINDOW_RATIO * min(one, two)
    if iterations is None:
        yield Limit(
            "no_iterations",
            f"how many iterations either window holds is not known; they are {one / 1e6:,.2f} and {two / 1e6:,.2f} ms",
            "a total may differ because a window holds more work; name a range that marks an iteration with --per",
            (Basis.COUNTS,) if longer or a.cut or b.cut else (),
        )
    elif iterations.a != iterations.b:
        yield Limit(
            "iterations",
            f"the windows hold {iterations.a:,} and {iterations.b:,} repetitions ({iterations.what})",
            "totals of the windows differ for that alone: compare what is given per repetition",
        )
    if iterations is not None and iterations.edge:
        yield Limit(
            "edges",
            "the edges of the windows cut a repetition on each rank",
            f"what differs by less than {iterations.edge:.1%} per repetition may be their doing",
        )
    for label, side in (("A", a), ("B", b)):
        for note in side.trace.notes:
            if note.severity is Severity.ERROR:
                yield Limit(f"note_{note.code}", f"{label}: {note.what}", note.meaning, (Basis.COUNTS,))
