"""How long GPUs did something, and how much of their communication nothing hid: summed over GPUs, in one pass."""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING

import msgspec

from proctor.trace.device_work import Device, device_work, devices_of, refuse_unseen_graphs
from proctor.trace.intervals import Coverage, covered

if TYPE_CHECKING:
    from proctor.trace.trace import Trace

_COMPUTE, _COMMUNICATION, _OTHER = range(3)


class Busy(msgspec.Struct, frozen=True, kw_only=True):
    """How long the GPUs of one side did something, summed over GPUs; ns.

    Attributes:
        devices: GPUs that did something.
        busy: union of everything that ran.
        idle: the rest of the time from a GPU's first work to its last.
        communication: union of communication kernels.
        exposed: the part of it during which no other kernel ran on that GPU.
    """

    devices: int
    busy: int
    idle: int
    communication: int
    exposed: int


def busy(trace: Trace, communicates: Set[int | None]) -> Busy:
    """Unions per GPU, in order of time.

    Args:
        trace: an open trace.
        communicates: ids of the names of kernels that communicate.

    Raises:
        UserError: graphs ran whose work the trace does not show.
    """
    refuse_unseen_graphs(trace, "busy and idle time")
    device_of = devices_of(trace)
    coverages: dict[Device, Coverage] = {}
    spans: dict[Device, tuple[int, int]] = {}
    for work in device_work(trace):
        device = device_of(work.process, work.device)
        kind = _OTHER if work.view != "kernels" else _COMMUNICATION if work.what in communicates else _COMPUTE
        coverages.setdefault(device, Coverage(kinds=3)).add(work.start, work.end, kind)
        first, last = spans.get(device, (work.start, work.end))
        spans[device] = (first, max(last, work.end))
    times = [coverage.close() for coverage in coverages.values()]
    ran = sum(sum(time.values()) for time in times)
    return Busy(
        devices=len(times),
        busy=ran,
        idle=sum(last - first for first, last in spans.values()) - ran,
        communication=sum(covered(time, [_COMMUNICATION]) for time in times),
        exposed=sum(covered(time, [_COMMUNICATION]) - covered(time, [_COMMUNICATION, _COMPUTE]) for time in times),
    )
