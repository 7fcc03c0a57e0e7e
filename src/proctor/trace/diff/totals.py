"""Figures of whole windows: time, idle, what overlaps, counts."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from proctor.rows import UserError
from proctor.trace.diff.changes import Change, of_sum
from proctor.trace.diff.repeats import Iterations
from proctor.trace.diff.sides import Kind, Side
from proctor.trace.diff.split import Amount
from proctor.trace.overlap.overlap import overlap
from proctor.trace.work.device_work import VIEWS, Device, devices_of, refuse_unseen_graphs


class Busy(msgspec.Struct, frozen=True, kw_only=True):
    """What the GPUs of one side did, summed over GPUs; ns.

    Attributes:
        devices: GPUs that did something.
        busy: union of everything that ran.
        idle: the rest of the time from a GPU's first work to its last.
        communication: union of communication kernels.
        exposed: the part of it during which no other kernel ran on that GPU.
        exposed_copies: copies to or from elsewhere during which no kernel that computes ran.
    """

    devices: int = 0
    busy: int = 0
    idle: int = 0
    communication: int = 0
    exposed: int = 0
    exposed_copies: int = 0


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
    _Metric(
        "exposed_copies", "ns", "copies to or from elsewhere, while nothing computed", lambda _, b: b.exposed_copies
    ),
    _Metric("syncs", "ns", "summed time of synchronisations", lambda side, _: _all_of(side.syncs)),
    _Metric("api", "ns", "the CPU's time in calls of the CUDA API", lambda side, _: _all_of(side.calls)),
    _Metric("calls", "launches", "kernels launched", _counted(Kind.KERNEL)),
    _Metric("copy_calls", "copies", "copies made", _counted(Kind.COPY)),
    _Metric("copied", "bytes", "bytes copied", lambda side, _: _bytes(side)),
    _Metric("devices", "GPUs", "GPUs that did something", lambda _, busy: busy.devices),
)
_OF_GPUS = ("busy", "idle", "communication", "exposed", "exposed_copies", "devices")
METRICS = tuple(metric.name for metric in _METRICS)
"""Names of the totals."""


def totals(a: Side, b: Side, changes: tuple[Change, ...], iterations: Iterations | None) -> tuple[Total, ...]:
    """Every total of both windows as captured, and per repetition."""
    try:
        one, two = _busy(a), _busy(b)
        unseen = ""
    except UserError as error:
        one = two = Busy()
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
        return iterations.a / max(a.ranks, 1), iterations.b / max(b.ranks, 1)
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
    """Unions per GPU.

    Raises:
        UserError: nothing ran on a GPU, or graphs ran whose work the trace does not show.
    """
    refuse_unseen_graphs(side.trace, "idle time")
    found = overlap(side.trace).devices
    ran = sum(each.busy for each in found)
    return Busy(
        devices=len(found),
        busy=ran,
        idle=_spans(side) - ran,
        communication=sum(each.communication for each in found),
        exposed=sum(each.exposed_communication for each in found),
        exposed_copies=sum(each.exposed_copies for each in found),
    )


def _spans(side: Side) -> int:
    """From each GPU's first work to its last, summed over GPUs."""
    device_of = devices_of(side.trace)
    spans: dict[Device, tuple[int, int]] = {}
    for view in VIEWS:
        sql = f'SELECT IFNULL(process, -1), IFNULL(device, -1), MIN(start), MAX("end") FROM {view} GROUP BY 1, 2'
        for process, device, first, last in side.trace.rows(sql):
            key = device_of(process, device)
            before = spans.get(key, (first, last))
            spans[key] = (min(first, before[0]), max(last, before[1]))
    return sum(last - first for first, last in spans.values())
