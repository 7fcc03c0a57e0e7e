"""The part of a summary about time: how busy each GPU was, why it idled, and whether communication was hidden."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from proctor.rows import UserError
from proctor.trace.overlap.antipatterns import Finding, Verdict
from proctor.trace.overlap.overlap import Overlap, overlap
from proctor.trace.trace import Trace
from proctor.trace.work.gaps import Gaps, gaps

_RANKED = 200
"""Gaps whose cause is looked for."""


class DeviceTime(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU from its first work to its last; ns. `share` is that of idle time."""

    device: int
    pids: tuple[int, ...]
    busy: int
    idle: int
    share: float
    gaps: int


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """The cause of idle gaps that takes most time.

    Attributes:
        cause: in words.
        gaps: how many of the longest gaps have it.
        length: their length in sum, ns.
        ranked: the length of all gaps whose cause was looked for, ns; the rest is in shorter ones.
        longest: the longest of the gaps with this cause, ns.
        why: the evidence for that one.
    """

    cause: str
    gaps: int
    length: int
    ranked: int
    longest: int
    why: str


class Communication(msgspec.Struct, frozen=True, kw_only=True):
    """Time in which GPUs communicated, and the part in which they did nothing else; ns, summed over GPUs."""

    total: int
    exposed: int
    share: float
    """Of the time in which the GPUs did something."""


class Times(NamedTuple):
    """What could be told; `why` says why nothing could."""

    devices: tuple[DeviceTime, ...] = ()
    gap: Gap | None = None
    communication: Communication | None = None
    antipatterns: tuple[Finding, ...] = ()
    why: str = ""


def times_of(trace: Trace) -> Times:
    """Busy and idle time of each GPU; nothing where graphs hide work.

    Raises:
        UserError: the file is damaged.
    """
    try:
        found = gaps(trace, top=_RANKED)
    except UserError as error:
        return Times(why=error.what)
    devices = tuple(
        DeviceTime(device=i.device, pids=i.pids, busy=i.busy, idle=i.idle, share=i.share, gaps=i.gaps)
        for i in sorted(found.devices, key=lambda idle: (idle.device, idle.pids))
    )
    overlapped = overlap(trace)
    seen = tuple(finding for finding in overlapped.findings if finding.verdict is Verdict.FOUND)
    return Times(devices, _gap(found), _communication(overlapped), seen)


def _gap(found: Gaps) -> Gap | None:
    if not found.causes:
        return None
    most = found.causes[0]
    longest = next(gap for gap in found.gaps if gap.cause is most.cause)
    return Gap(
        cause=str(most.cause),
        gaps=most.gaps,
        length=most.length,
        ranked=found.ranked,
        longest=longest.length,
        why=longest.why,
    )


def _communication(found: Overlap) -> Communication | None:
    total = sum(device.communication for device in found.devices)
    busy = sum(device.busy for device in found.devices)
    if not total:
        return None
    exposed = sum(device.exposed_communication for device in found.devices)
    return Communication(total=total, exposed=exposed, share=total / busy)
