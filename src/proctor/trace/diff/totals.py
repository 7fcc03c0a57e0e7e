"""Figures of whole windows: time, idle, what overlaps, counts."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from proctor.rows import UserError
from proctor.trace.diff.changes import Change, of_sum
from proctor.trace.diff.repeats import Iterations
from proctor.trace.diff.sides import COMMUNICATION, Kind, Side
from proctor.trace.diff.split import Amount
from proctor.trace.exposure import Busy, busy


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """One figure on both sides.

    Attributes:
        name: also the name of the metric in a gate.
        unit: ``ns``, or what is counted.
        what: one line.
        a: A's value; None where it is not known.
        b: B's value.
        a_each: A's value per repetition, where repetitions are known (of the window: per repetition of a rank).
        b_each: the same of B.
        noise: by how much it could differ by chance, judged by repeated launches within the windows; None: not known.
        why: why a value is not known.
    """

    name: str
    unit: str
    what: str = ""
    a: float | None = None
    b: float | None = None
    a_each: float | None = None
    b_each: float | None = None
    noise: float | None = None
    why: str = ""

    @property
    def delta(self) -> float | None:
        """B's value less A's."""
        return None if self.a is None or self.b is None else self.b - self.a


class _Metric(msgspec.Struct, frozen=True):
    name: str
    unit: str
    what: str
    value: Callable[[Side, Busy], float]


def _amount(*kinds: Kind) -> Callable[[Side, Busy], float]:
    return lambda side, _: side.amount(*kinds).total


def _counted(*kinds: Kind) -> Callable[[Side, Busy], float]:
    return lambda side, _: side.amount(*kinds).calls


def _all_of(amounts: dict[str, Amount]) -> int:
    return sum(amount.total for amount in amounts.values())


_METRICS = (
    _Metric("total", "ns", "summed time of kernels", _amount(Kind.KERNEL)),
    _Metric("work", "ns", "summed time of kernels, copies, memsets and whole CUDA graphs", _amount()),
    _Metric("copies", "ns", "summed time of copies", _amount(Kind.COPY)),
    _Metric("memsets", "ns", "summed time of memsets", _amount(Kind.MEMSET)),
    _Metric("window", "ns", "first start to last end of GPU work", lambda side, _: side.span[1] - side.span[0]),
    _Metric("busy", "ns", "time in which a GPU did something, summed over GPUs", lambda _, busy: busy.busy),
    _Metric("idle", "ns", "time in which a GPU did nothing between its first and last work", lambda _, b: b.idle),
    _Metric("communication", "ns", "time in which communication ran, summed over GPUs", lambda _, b: b.communication),
    _Metric("exposed", "ns", "of that, while no other kernel ran on the GPU", lambda _, busy: busy.exposed),
    _Metric("syncs", "ns", "summed time of synchronisations", lambda side, _: _all_of(side.syncs)),
    _Metric("api", "ns", "the CPU's time in calls of the CUDA API", lambda side, _: _all_of(side.calls)),
    _Metric("calls", "launches", "kernels launched", _counted(Kind.KERNEL)),
    _Metric("copy_calls", "copies", "copies made", _counted(Kind.COPY)),
    _Metric("copied", "bytes", "bytes copied", lambda side, _: _bytes(side)),
    _Metric("devices", "GPUs", "GPUs that did something", lambda _, busy: busy.devices),
)
_OF_GPUS = ("busy", "idle", "communication", "exposed", "devices")
METRICS = tuple(metric.name for metric in _METRICS)
"""Names of the totals."""


def totals(a: Side, b: Side, changes: tuple[Change, ...], iterations: Iterations | None) -> tuple[Total, ...]:
    """Every total of both windows as captured, and per repetition."""
    try:
        one, two = _busy(a), _busy(b)
        unseen = ""
    except UserError as error:
        one = two = Busy(devices=0, busy=0, idle=0, communication=0, exposed=0)
        unseen = str(error)
    kernels = [change for change in changes if change.kind is Kind.KERNEL]
    noise = {"total": of_sum(kernels), "work": of_sum(changes)}
    unknown = _unknown(a, b) | dict.fromkeys(_OF_GPUS if unseen else (), unseen)
    return tuple(
        Total(name=m.name, unit=m.unit, what=m.what, why=unknown[m.name])
        if m.name in unknown
        else _total(m, (m.value(a, one), m.value(b, two)), noise.get(m.name), _repetitions(m, a, b, iterations))
        for m in _METRICS
    )


def _total(
    metric: _Metric, values: tuple[float, float], noise: float | None, repetitions: tuple[float, float] | None
) -> Total:
    a, b = values
    each = (None, None) if repetitions is None else (a / repetitions[0], b / repetitions[1])
    return Total(
        name=metric.name, unit=metric.unit, what=metric.what, a=a, b=b, a_each=each[0], b_each=each[1], noise=noise
    )


def _repetitions(metric: _Metric, a: Side, b: Side, iterations: Iterations | None) -> tuple[float, float] | None:
    if iterations is None or metric.name == "devices":
        return None
    if metric.name == "window":  # every rank repeats within the same window
        return iterations.a / a.ranks, iterations.b / b.ranks
    return iterations.a, iterations.b


def _unknown(a: Side, b: Side) -> dict[str, str]:
    """What a side's trace lacks: a figure of 0 would be wrong."""
    missing = {}
    for label, side in (("A", a), ("B", b)):
        if not side.calls:
            missing["api"] = f"{label} holds no API calls"
        if not side.syncs and not side.trace.has("syncs"):
            missing.setdefault("syncs", f"{label} holds no synchronisations")
    return missing


def _bytes(side: Side) -> int:
    return sum(work.bytes for work in side.works.values() if work.kind is Kind.COPY)


def _busy(side: Side) -> Busy:
    return busy(side.trace, {n for work in side.kernels if work.category == COMMUNICATION for n in work.ids})
