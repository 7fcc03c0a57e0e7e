"""All events of a trace as columns of numbers, in rows in which none hides another; names stay in the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proctor.rows import UserError
from proctor.trace.timeline.timeline import Kind, origin
from proctor.trace.views import MARK, PUSH_POP, START_END

if TYPE_CHECKING:
    from proctor.trace.trace import Trace

Numbers = NDArray[np.int64]

MOST_EVENTS = 2_000_000
"""Events that are held of one trace, 25 bytes each."""
MOST_DEPTH = 12
"""Rows of a lane; what lies deeper shares the last one."""
MOST_LANES = 20_000
_CHUNK = 50_000


class Group(StrEnum):
    """What a lane holds: kinds of events that one looks at together."""

    KERNELS = "kernels"
    MEMORY = "copies and memsets"
    GRAPHS = "CUDA graphs"
    SYNCS = "synchronisations"
    RANGES = "NVTX ranges"
    CALLS = "CUDA calls"
    OS_CALLS = "OS calls"


GROUPS = tuple(Group)


class Lane(NamedTuple):
    """Events of one group on one stream, or of one thread.

    Attributes:
        group: of events.
        process: ``globalPid``; None where the trace does not say.
        device: number of the GPU, as the process counts; None for threads.
        context: on that GPU.
        stream: in that context.
        thread: ``globalTid``.
    """

    group: Group
    process: int | None
    device: int | None = None
    context: int | None = None
    stream: int | None = None
    thread: int | None = None


class Row(NamedTuple):
    """Events of a lane at one depth, which are those from `first` to before `last` of all."""

    lane: Lane
    depth: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Events:
    """The events, by row and within a row by start. Times are ns after the trace's first event.

    Attributes:
        starts: one each.
        ends: of an event whose end the trace does not have, that of the whole trace.
        ids: of the event in the view of its kind.
        kinds: place of its kind in `KINDS`.
        rows: where each row lies, GPUs first.
        span: from 0 to the last end; 0 without events.
        zero: the first event on the trace's own clock.
        left_out: kinds that are too many to be held, with their number.
    """

    starts: Numbers
    ends: Numbers
    ids: Numbers
    kinds: NDArray[np.int8]
    rows: tuple[Row, ...]
    span: int
    zero: int
    left_out: Mapping[Kind, int]

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The lanes, in order."""
        return tuple(dict.fromkeys(row.lane for row in self.rows))


class _Source(NamedTuple):
    group: Group
    view: str
    where: str = 'v."end" IS NOT NULL'
    on_gpu: bool = True


_SOURCES = {
    Kind.KERNEL: _Source(Group.KERNELS, "kernels"),
    Kind.COPY: _Source(Group.MEMORY, "copies"),
    Kind.MEMSET: _Source(Group.MEMORY, "memsets"),
    Kind.GRAPH: _Source(Group.GRAPHS, "graphs"),
    Kind.RANGE: _Source(Group.RANGES, "annotations", f"v.kind IN ({PUSH_POP}, {START_END})", on_gpu=False),
    Kind.MARK: _Source(Group.RANGES, "annotations", f"v.kind = {MARK}", on_gpu=False),
    Kind.SYNC: _Source(Group.SYNCS, "syncs"),
    Kind.CALL: _Source(Group.CALLS, "calls", on_gpu=False),
    Kind.OS_CALL: _Source(Group.OS_CALLS, "os_calls", on_gpu=False),
}
KINDS = tuple(_SOURCES)
"""Those that tell most first: the last ones are left out where there are too many."""


def read_events(trace: Trace, most: int = MOST_EVENTS) -> Events:
    """Reads every event of a trace, once; of kinds that do not fit into `most` events none, which is told.

    Raises:
        UserError: there are more kernels than that, or the file is damaged.
    """
    kept, left_out = _kept(trace, most)
    lanes: dict[Lane, int] = {}
    parts = [_columns(trace, kind, lanes) for kind in kept]
    kinds = [np.full(len(part), KINDS.index(kind), np.int8) for kind, part in zip(kept, parts, strict=True)]
    table = np.concatenate(parts) if parts else np.empty((0, 4), np.int64)
    kind = np.concatenate(kinds) if kinds else np.empty(0, np.int8)
    zero = origin(trace)
    ids, starts, ends, lane = table[:, 0], table[:, 1] - zero, table[:, 2] - zero, table[:, 3]
    span = int(max(starts.max(initial=0), ends.max(initial=0)))
    ends = np.where(ends < starts, np.where(kind == KINDS.index(Kind.MARK), starts, span), ends)
    order = np.lexsort((-ends, starts, lane))
    lane, starts, ends = lane[order], starts[order], ends[order]
    depth = _depths(lane, starts, ends, len(lanes))
    stable = np.lexsort((starts, depth, lane))
    final = order[stable]
    rows = _rows(lane[stable], depth[stable], list(lanes))
    return Events(
        starts=starts[stable], ends=ends[stable], ids=ids[final], kinds=kind[final],
        rows=rows, span=span, zero=zero, left_out=left_out,
    )  # fmt: skip


def depths_of(starts: Numbers, ends: Numbers, most: int = MOST_DEPTH) -> NDArray[np.int16]:
    """For each event the first row in which it overlaps none before it: what nests lies below what contains it.

    Args:
        starts: in order, the longer event first among those that start together.
        ends: of the same events.
        most: rows; what finds none free goes to the last one, and overlaps there.
    """
    found = np.zeros(len(starts), np.int16)
    if not len(starts) or bool((starts[1:] >= np.maximum.accumulate(ends)[:-1]).all()):
        return found
    free: list[int] = []  # when each row is free again
    for at in range(0, len(starts), _CHUNK):
        times = zip(starts[at : at + _CHUNK].tolist(), ends[at : at + _CHUNK].tolist(), strict=True)
        found[at : at + _CHUNK] = [_placed(free, start, end, most) for start, end in times]
    return found


def _placed(free: list[int], start: int, end: int, most: int) -> int:
    for depth, busy_until in enumerate(free):
        if busy_until <= start:
            free[depth] = end
            return depth
    if len(free) < most:
        free.append(end)
    else:
        free[-1] = max(free[-1], end)
    return len(free) - 1


def _kept(trace: Trace, most: int) -> tuple[list[Kind], dict[Kind, int]]:
    """Kinds that are read, and those that are not."""
    kept: list[Kind] = []
    left_out: dict[Kind, int] = {}
    room = most
    for kind, source in _SOURCES.items():
        count = trace.one(f"SELECT COUNT(*) FROM {source.view} AS v WHERE {source.where} AND v.start IS NOT NULL")
        if count <= room:
            kept.append(kind)
            room -= count
        elif kind is Kind.KERNEL:
            fix = "write a part of it with `proctor trace export --since ... --until ...`"
            raise UserError(f"{count:,} kernels are too many for a timeline", where=str(trace.path), fix=fix)
        else:
            left_out[kind] = count
    return kept, left_out


def _columns(trace: Trace, kind: Kind, lanes: dict[Lane, int]) -> Numbers:
    """Id, start, end (before the start where there is none) and lane of each event of a kind."""
    source = _SOURCES[kind]
    place = (
        "v.process, v.device, v.context, v.stream, NULL" if source.on_gpu else "v.process, NULL, NULL, NULL, v.thread"
    )
    rows = trace.rows(
        f'SELECT v.id, v.start, IFNULL(v."end", v.start - 1), {place} FROM {source.view} AS v '
        f"WHERE {source.where} AND v.start IS NOT NULL"
    )
    known: dict[tuple[int | None, ...], int] = {}
    blocks = [np.empty((0, 4), np.int64)]
    while chunk := list(islice(rows, _CHUNK)):
        for where in {row[3:] for row in chunk} - known.keys():
            known[where] = lanes.setdefault(Lane(source.group, *where), len(lanes))
        if len(lanes) > MOST_LANES:
            raise UserError(f"more than {MOST_LANES:,} streams and threads", where=str(trace.path))
        blocks.append(np.array([(*row[:3], known[row[3:]]) for row in chunk], np.int64))
    return np.concatenate(blocks)


def _depths(lane: Numbers, starts: Numbers, ends: Numbers, lanes: int) -> NDArray[np.int16]:
    """Depths of events that lie by lane."""
    found = np.zeros(len(lane), np.int16)
    for first, last in _runs(np.searchsorted(lane, np.arange(lanes + 1))):
        found[first:last] = depths_of(starts[first:last], ends[first:last])
    return found


def _runs(bounds: Numbers) -> Iterator[tuple[int, int]]:
    numbers: Sequence[int] = bounds.tolist()
    return ((first, last) for first, last in pairwise(numbers) if last > first)


def _rows(lane: Numbers, depth: NDArray[np.int16], lanes: Sequence[Lane]) -> tuple[Row, ...]:
    """The rows of events that lie by lane and depth, in the order in which they are shown."""
    if not len(lane):
        return ()
    changes = np.flatnonzero((np.diff(lane) != 0) | (np.diff(depth) != 0)) + 1
    bounds = [0, *changes.tolist(), len(lane)]
    pairs: Iterable[tuple[int, int]] = pairwise(bounds)
    found = [Row(lanes[int(lane[first])], int(depth[first]), first, last) for first, last in pairs]
    return tuple(sorted(found, key=lambda row: (*_place(row.lane), row.depth)))


def _place(lane: Lane) -> tuple[int, ...]:
    """GPUs before threads, each by their numbers, what is looked at together side by side."""
    numbers = (number or 0 for number in (lane.process, lane.device, lane.context, lane.stream, lane.thread))
    process, device, context, stream, thread = numbers
    return (int(lane.device is None), process, device, context, stream, thread, GROUPS.index(lane.group))
