"""Overlap: what computes, what communicates and what copies on each GPU, and how much of that goes on at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from proctor.trace.overlap.antipatterns import Finding, judge
from proctor.trace.overlap.lanes import COMMUNICATION, COMPUTE, COPIES, KINDS, Lane, Sorter
from proctor.trace.overlap.waits import PageableCopies, SyncRows, Wait, pageable_copies, sync_rows, waits
from proctor.trace.work.census import Stream, stream_of
from proctor.trace.work.device_work import device_work, devices_of, pid_or_unknown
from proctor.trace.work.intervals import covered
from proctor.trace.work.scope import WHOLE, Scope, nothing_in

if TYPE_CHECKING:
    from proctor.trace.trace import Trace
    from proctor.trace.work.device_work import Device


class StreamTime(msgspec.Struct, frozen=True, kw_only=True):
    """What one stream did, by kind of work (`proctor.trace.overlap.lanes.KINDS`).

    Attributes:
        stream: which.
        time: time in which each kind ran, a union, ns; kinds that did not run are left out.
        count: how many there were of each.
    """

    stream: Stream
    time: dict[str, int]
    count: dict[str, int]


class DeviceOverlap(msgspec.Struct, frozen=True, kw_only=True):
    """What one GPU did, and what of it at once. All times are unions of intervals over its streams, in ns.

    Attributes:
        device: as its process numbers it.
        pids: processes that used it.
        busy: anything ran.
        compute: kernels that are no communication.
        communication: kernels of NCCL, RCCL, NVSHMEM and custom all-reduces (the category of the line-up).
        copies: copies to or from the host or another device.
        local_copies: copies within the device.
        memsets: memsets.
        graphs: CUDA graphs of which only the whole is in the trace; what they did inside is not known.
        compute_and_communication: both ran.
        compute_and_copies: both ran.
        communication_and_copies: both ran.
        exposed_communication: communication while neither compute nor a whole graph ran.
        exposed_copies: copies while neither compute nor a whole graph ran.
        streams: each of its streams by itself.
    """

    device: int
    pids: tuple[int, ...]
    busy: int
    compute: int
    communication: int
    copies: int
    local_copies: int
    memsets: int
    graphs: int
    compute_and_communication: int
    compute_and_copies: int
    communication_and_copies: int
    exposed_communication: int
    exposed_copies: int
    streams: tuple[StreamTime, ...]


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """Overlap of every GPU, what the host waited for, and the eight antipatterns of transfers.

    Attributes:
        devices: each GPU.
        waits: calls in which the host waited, by name, the longest in sum first.
        syncs: the synchronisations as the tracer saw them, by kind. They are waiting and never count as work.
        pageable: copies from or to pageable memory, which the driver stages and which cannot overlap.
        findings: for each antipattern whether the trace shows it, with the evidence.
    """

    devices: tuple[DeviceOverlap, ...]
    waits: tuple[Wait, ...]
    syncs: tuple[SyncRows, ...]
    pageable: PageableCopies
    findings: tuple[Finding, ...]


def overlap(trace: Trace, scope: Scope = WHOLE) -> Overlap:
    """Measures overlap in one pass in order of time.

    Raises:
        UserError: nothing ran on a GPU within `scope`, or the file is damaged.
    """
    device_of, sorter = devices_of(trace), Sorter(trace)
    lanes: dict[Device, Lane] = {}
    for work in device_work(trace, scope):
        device = device_of(work.process, work.device)
        if device not in lanes:
            lanes[device] = Lane()
        lanes[device].add(work, sorter)
    if not lanes:
        raise nothing_in(trace, scope, "overlap")
    found = tuple(_device(lane) for lane in lanes.values())
    host, rows = waits(trace, scope), sync_rows(trace, scope)
    return Overlap(
        devices=found,
        waits=host,
        syncs=rows,
        pageable=pageable_copies(trace, scope),
        findings=judge(trace, list(lanes.values()), host, rows),
    )


def _device(lane: Lane) -> DeviceOverlap:
    time = lane.coverage.close()
    return DeviceOverlap(
        device=lane.places[0][1],
        pids=tuple(sorted({pid_or_unknown(place[0]) for place in lane.places})),
        busy=sum(time.values()),
        **{name: covered(time, [kind]) for kind, name in enumerate(KINDS)},
        compute_and_communication=covered(time, [COMPUTE, COMMUNICATION]),
        compute_and_copies=covered(time, [COMPUTE, COPIES]),
        communication_and_copies=covered(time, [COMMUNICATION, COPIES]),
        exposed_communication=lane.exposed(time, COMMUNICATION),
        exposed_copies=lane.exposed(time, COPIES),
        streams=tuple(_stream(lane, place) for place in sorted(lane.places)),
    )


def _stream(lane: Lane, place: tuple[int, ...]) -> StreamTime:
    unions, counts = lane.by_stream[place]
    ran = [(name, kind) for kind, name in enumerate(KINDS) if counts[kind]]
    return StreamTime(
        stream=stream_of(place),
        time={name: unions[kind].busy for name, kind in ran},
        count={name: counts[kind] for name, kind in ran},
    )
