"""Conditions under which a diff fails: ``total > +5%``, ``kernel:"flash" > +200us``, ``exposed > 3ms``.

Grammar: ``METRIC OP [+|-]NUMBER[%|ns|us|ms|s]`` with OP one of ``> >= < <=``. A number with a sign or a per cent sign
is compared with the change from A to B (per cent: of A's value), one without with B's value itself.

A change is judged only where both sides hold the same amount of work, or where figures are per repetition: a window
with fewer repetitions would pass any ``total > +5%``. Otherwise a condition neither passes nor fails.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from proctor.rows import UserError
from proctor.trace.diff.changes import Change, of_sum
from proctor.trace.diff.comparable import Basis, Limit
from proctor.trace.diff.diffing import Diff
from proctor.trace.diff.noise import SIGMAS
from proctor.trace.diff.repeats import Iterations
from proctor.trace.diff.totals import Total

_GATE = re.compile(
    r"""\s*(?P<metric>[a-z_]+)(?::(?:"(?P<quoted>[^"]+)"|(?P<plain>[^\s<>"]+)))?\s*
    (?P<op>>=|<=|>|<)\s*(?P<sign>[+-]?)\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>%|ns|us|ms|s|)\s*""",
    re.VERBOSE,
)
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_UNITS = {"": 1.0, "ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9, "%": 0.01}
_SELECTING = ("kernel", "category")
_UNREPEATED = ("devices",)
_GRAPHS = "cuda graphs"
"""The category of whole graphs, in small letters."""


class Outcome(StrEnum):
    """How a condition came out."""

    PASSED = "passed"
    FAILED = "failed"
    WITHIN_NOISE = "within noise"
    """The condition holds, by a change that repeated launches in one window show as well: it does not fail."""
    UNJUDGED = "cannot be judged"
    """The captures differ in a way that makes this change no change of the program."""


_WINDOWS = ("iterations", "no_iterations", "ranks")
"""Limits by which two windows hold different amounts of work; figures per repetition do not mind."""
_HIDDEN = ("graphs", "graphs_unresolved")
"""Limits by which kernels are missing inside CUDA graphs."""
_OF_KERNELS = (*_SELECTING, "total", "calls", "communication", "exposed")


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """A condition, read.

    Attributes:
        text: as the user wrote it.
        metric: a total's name, ``kernel`` or ``category``.
        selects: part of a kernel's name, or a category; empty for totals.
        op: one of ``> >= < <=``.
        limit: in the metric's own unit (ns, launches); a share where `relative`.
        change: whether it is about the change or about B's value.
        relative: whether the change is relative to A's value.
    """

    text: str
    metric: str
    selects: str
    op: str
    limit: float
    change: bool
    relative: bool
    timed: bool


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A condition and what came of it.

    Attributes:
        gate: the condition as written.
        outcome: what came of it.
        a: A's figure, as captured or per repetition.
        b: the same of B.
        said: both figures, the change and the noise, in words.
        why: why it cannot be judged; else what to bear in mind, or nothing.
    """

    gate: str
    outcome: Outcome
    a: float
    b: float
    said: str
    why: str = ""


def read_gate(text: str, metrics: Sequence[str]) -> Gate:
    """Reads a condition.

    Args:
        text: what the user wrote.
        metrics: names of the totals there are.

    Raises:
        UserError: it does not follow the grammar, or there is no such metric.
    """
    match = _GATE.fullmatch(text)
    if match is None:
        raise UserError(
            f"cannot read the condition {text!r}",
            fix="""write METRIC OP [+-]NUMBER[%|ns|us|ms|s], such as 'total > +5%' or 'kernel:"flash" > +200us'""",
        )
    metric, selects = match["metric"], match["quoted"] or match["plain"] or ""
    if (metric in _SELECTING) != bool(selects) or metric not in (*_SELECTING, *metrics):
        known = ", ".join([*metrics, 'kernel:"part of a name"', "category:NAME"])
        raise UserError(f"no such metric in the condition {text!r}", fix=f"the metrics are {known}")
    relative = match["unit"] == "%"
    sign = -1.0 if match["sign"] == "-" else 1.0
    return Gate(
        text=text.strip(),
        metric=metric,
        selects=selects,
        op=match["op"],
        limit=sign * float(match["number"]) * _UNITS[match["unit"]],
        change=relative or bool(match["sign"]),
        relative=relative,
        timed=match["unit"] not in ("", "%"),
    )


def check(gate: Gate, found: Diff, *, each: bool = False, as_captured: bool = False) -> Checked:
    """Holds a diff against a condition.

    Args:
        gate: the condition.
        found: the diff.
        each: compare figures per repetition instead of those of the whole windows.
        as_captured: judge changes of whole windows although they may hold different amounts of work.

    Raises:
        UserError: the metric is not known for these traces, a unit does not fit, or no kernel has that name.
    """
    total = _total(gate, found.totals, found.changes)
    if each and found.iterations is not None:
        total = _each(total, found.iterations)
    if total.a is None or total.b is None:
        raise UserError(f"the condition {gate.text!r} cannot be checked: {total.name} is not known: {total.why}")
    if gate.timed and total.unit != "ns":
        raise UserError(f"the condition {gate.text!r} has a unit of time, but {total.name} is counted in {total.unit}")
    change = total.b - total.a
    value = _relative(change, total.a) if gate.relative else change if gate.change else total.b
    holds = _OPERATORS[gate.op](value, gate.limit)
    noise = total.noise
    outcome = Outcome.FAILED if holds else Outcome.PASSED
    if holds and gate.change and noise is not None and change != 0 and abs(change) <= noise:
        outcome = Outcome.WITHIN_NOISE
    why = _unjudged(gate, found, windows=not each and not as_captured) if gate.change else ""
    if why:
        outcome = Outcome.UNJUDGED
    elif each and gate.change and gate.metric not in _UNREPEATED:
        why = _edges(gate, found, total.b / total.a if total.a else 0.0)
    return Checked(gate=gate.text, outcome=outcome, a=total.a, b=total.b, said=_said(total, change), why=why)


def _unjudged(gate: Gate, found: Diff, *, windows: bool) -> str:
    """Why a change of this metric is no change of the program; empty where nothing says so.

    A plain value of B needs no A, and is always judged.
    """
    if found.comparability.reasons:
        return "; ".join(found.comparability.reasons)
    for limit in found.comparability.limits:
        barred = limit.code == "iterations" or Basis.COUNTS in limit.bars
        if windows and limit.code in _WINDOWS and barred and gate.metric not in _UNREPEATED:
            fix = "name a range that marks an iteration with --per, or judge whole windows with --as-captured"
            return f"{_windows(found, limit)}: {fix}"
        if limit.code in _HIDDEN and gate.metric in _OF_KERNELS and gate.selects.lower() != _GRAPHS:
            return f"{limit.what}: {limit.meaning}"
        if limit.code.startswith("note_"):
            return f"{limit.what}: {limit.meaning}"
    return ""


def _windows(found: Diff, limit: Limit) -> str:
    if limit.code != "iterations" or found.iterations is None:
        return limit.what
    return f"the windows hold {found.iterations.a:,} and {found.iterations.b:,} repetitions"


def _edges(gate: Gate, found: Diff, ratio: float) -> str:
    """A warning where what the edges of cut windows may make up would turn the outcome over."""
    edge = found.iterations.edge if found.iterations is not None else 0.0
    if not gate.relative or not edge or not ratio:
        return ""
    holds = {_OPERATORS[gate.op](ratio * factor - 1, gate.limit) for factor in (1 - edge, 1, 1 + edge)}
    return f"the edges of the windows may make up {edge:.1%}, and turn the outcome over" if len(holds) > 1 else ""


def _total(gate: Gate, totals: Sequence[Total], changes: Sequence[Change]) -> Total:
    if gate.metric not in _SELECTING:
        return next(total for total in totals if total.name == gate.metric)
    if gate.metric == "kernel":
        chosen = [c for c in changes if c.kind == "kernel" and gate.selects.lower() in c.name.lower()]
    else:
        chosen = [c for c in changes if c.category.lower() == gate.selects.lower()]
    if not chosen:
        known = sorted({c.category for c in changes})
        raise UserError(
            f"nothing in either trace matches the condition {gate.text!r}",
            fix=f"the categories are {', '.join(known)}" if gate.metric == "category" else None,
        )
    gone = "" if any(c.b for c in chosen) else " (gone from B)"
    return Total(
        name=f"{gate.metric}:{gate.selects}{gone}",
        unit="ns",
        a=sum(c.a.total_ns for c in chosen if c.a),
        b=sum(c.b.total_ns for c in chosen if c.b),
        noise=of_sum(chosen),
    )


def _each(total: Total, iterations: Iterations) -> Total:
    """The figure per repetition; noise by the mean number of them."""
    if total.a is None or total.b is None or total.name in _UNREPEATED:
        return total
    a = total.a / iterations.a if total.a_each is None else total.a_each
    b = total.b / iterations.b if total.b_each is None else total.b_each
    noise = None if total.noise is None else total.noise * 2 / (iterations.a + iterations.b)
    return msgspec.structs.replace(total, name=f"{total.name} per repetition", a=a, b=b, noise=noise)


def _relative(change: float, base: float) -> float:
    if base:
        return change / base
    return math.copysign(math.inf, change) if change else 0.0


def _said(total: Total, change: float) -> str:
    def shown(value: float, sign: str = "") -> str:
        return f"{value / 1e6:{sign},.3f} ms" if total.unit == "ns" else f"{value:{sign},.10g} {total.unit}"

    share = f" ({change / total.a:+.1%})" if total.a else ""
    noise = f", noise {shown(total.noise)} ({SIGMAS} sigma within the windows)" if total.noise else ""
    return f"{total.name}: {shown(total.a or 0)} -> {shown(total.b or 0)}, {shown(change, '+')}{share}{noise}"
