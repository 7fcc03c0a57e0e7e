"""The census: where the time on the GPUs went, by kernel or by any of seven other groupings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from proctor.trace.model import pid_of
from proctor.trace.reading.cache import cached, content_key
from proctor.trace.work.busy import DEVICE, STREAM, busy_by
from proctor.trace.work.census_copies import Copies, Memsets, copies_of, memsets_of
from proctor.trace.work.census_groups import Groups, groups_of
from proctor.trace.work.census_rows import Tallied, counted_rows
from proctor.trace.work.quantiles import Histogram
from proctor.trace.work.scope import WHOLE, By, Scope

if TYPE_CHECKING:
    from proctor.trace.trace import Trace


class Stream(msgspec.Struct, frozen=True, order=True):
    """A stream. The number alone says nothing: stream 7 exists on every device and in every process.

    Attributes:
        pid: the operating system's id of the process; -1 where the trace does not say.
        device: as that process numbers it.
        context: of that process.
        stream: within that context.
        process: ``globalPid``.
    """

    pid: int
    device: int
    context: int
    stream: int
    process: int


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One group of launches. Times are nanoseconds.

    Attributes:
        key: the group's name; a kernel's demangled name in full.
        calls: launches.
        total: their durations added up.
        share: of the durations of all kernels in the census, 0 to 1.
        mean: `total` / `calls`.
        median: the middle duration (the mean of the two middle ones where `calls` is even).
        p95: the least duration that at least 95 % of the launches do not exceed.
        error: by how much `median` and `p95` can be off; 0: they are exact.
        least, most: the shortest and the longest duration.
        first, last: when the first began and the last to end ended, on the trace's own clock.
        names: distinct demangled names in the group.
        devices: on which they ran, as their processes number them.
        pids: processes that launched them.
        streams: on which they ran.
    """

    key: str
    calls: int
    total: int
    share: float
    mean: float
    median: float
    p95: float
    error: int
    least: int
    most: int
    first: int
    last: int
    names: int
    devices: tuple[int, ...]
    pids: tuple[int, ...]
    streams: tuple[Stream, ...]


class Busy(msgspec.Struct, frozen=True, kw_only=True):
    """How long a stream or a device ran kernels. Times are nanoseconds.

    Attributes:
        device: as the process numbers it.
        pid: the process.
        stream: None for a whole device.
        busy: time in which at least one kernel ran: a union of intervals, never more than `span`.
        sum: durations added up; more than `busy` where kernels ran side by side.
        span: from the first kernel's start to the last end on this stream or device.
        share: `busy` / `span`.
    """

    device: int
    pid: int
    stream: Stream | None
    busy: int
    sum: int
    span: int
    share: float


class Census(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time went.

    Attributes:
        by: what `lines` are grouped by.
        scope: which launches are counted: those that start within.
        calls, total: of all kernels in the scope; `total` (ns) is a sum and counts what ran side by side twice.
        lines: the groups, the longest total first.
        devices, streams: busy time of each, as a union and as a sum.
        copies, memsets: what else ran, by kind. They are not in `total`.
        without_times: kernels that are in no figure, because they end before they start.
    """

    by: By
    scope: Scope
    calls: int
    total: int
    lines: tuple[Line, ...]
    devices: tuple[Busy, ...]
    streams: tuple[Busy, ...]
    copies: tuple[Copies, ...]
    memsets: tuple[Memsets, ...]
    without_times: int


def census(trace: Trace, by: By | str = By.FULL, scope: Scope = WHOLE) -> Census:
    """Counts every kernel that starts within `scope`, in one pass over the rows and one for each kind of busy time.

    Memory grows with the number of groups and their distinct durations (in buckets), not with the number of rows.

    Raises:
        UserError: the trace has no kernels (or, by NVTX, no ranges), or is damaged.
    """
    by = By(by)
    if not trace.has("kernels"):
        raise trace.missing("kernels", "a census")
    busy = busy_by(trace, "kernels", STREAM, scope)
    rows = counted_rows(trace, list(busy), scope, ranges=by is By.NVTX)
    groups = groups_of(trace, by)
    made: dict[int | str, _Group] = {}
    places: dict[tuple[int, ...], _Group] = {}
    for row in rows:
        key = groups.key(row)
        for group in (made.setdefault(key, _Group()), places.setdefault(row.place, _Group())):
            group.add(row)
    total = sum(group.durations.total for group in places.values())
    calls = sum(group.durations.count for group in places.values())
    lines = _lines(made, groups, total)
    streams = tuple(_busy(place, busy[place], [group], stream=True) for place, group in sorted(places.items()))
    return Census(
        by=by,
        scope=scope,
        calls=calls,
        total=total,
        lines=lines,
        devices=_devices(trace, busy, places, scope),
        streams=streams,
        copies=copies_of(trace, scope),
        memsets=memsets_of(trace, scope),
        without_times=trace.one(f"SELECT count(*) FROM kernels v WHERE {scope.sql}", scope.parameters) - calls,
    )


def kept_census(trace: Trace, by: By | str = By.FULL) -> Census:
    """`census` of a whole trace, from the cache where the same file was asked the same before."""
    by = By(by)
    return cached(content_key(trace.path), f"census-{by}-1", lambda: census(trace, by), type=Census)


class _Group:
    """What is known of a group while rows come in."""

    def __init__(self) -> None:
        self.durations = Histogram()
        self.first = self.last = 0
        self.names: set[int] = set()
        self.places: set[tuple[int, ...]] = set()

    def add(self, row: Tallied) -> None:
        if not self.durations.count or row.first < self.first:
            self.first = row.first
        self.last = max(self.last, row.last) if self.durations.count else row.last
        self.durations.add(row.bucket, row.calls, row.total, row.least, row.most)
        self.names.add(row.name)
        self.places.add(row.place)


def _lines(made: dict[int | str, _Group], groups: Groups, total: int) -> tuple[Line, ...]:
    texts = groups.texts(made)
    lines = [_line(texts[key], group, total) for key, group in made.items()]
    return tuple(sorted(lines, key=lambda line: (-line.total, line.key)))


def _line(text: str, group: _Group, total: int) -> Line:
    durations = group.durations
    median, p95 = durations.median(), durations.quantile(0.95)
    streams = sorted(stream_of(place) for place in group.places)
    return Line(
        key=text,
        calls=durations.count,
        total=durations.total,
        share=durations.total / total if total else 0.0,
        mean=durations.total / durations.count,
        median=median.value,
        p95=p95.value,
        error=max(median.error, p95.error),
        least=durations.least,
        most=durations.most,
        first=group.first,
        last=group.last,
        names=len(group.names),
        devices=tuple(sorted({stream.device for stream in streams})),
        pids=tuple(sorted({stream.pid for stream in streams})),
        streams=tuple(streams),
    )


def stream_of(place: tuple[int, ...]) -> Stream:
    """The stream at (process, device, context, stream), as in `proctor.trace.work.busy.STREAM`."""
    process, device, context, stream = place
    return Stream(pid_of(process) if process >= 0 else -1, device, context, stream, process)


def _devices(
    trace: Trace, busy: dict[tuple[int, ...], int], places: dict[tuple[int, ...], _Group], scope: Scope
) -> tuple[Busy, ...]:
    """Busy time of devices. One with a single stream is as busy as that stream: no further pass over the rows."""
    on: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for place in places:
        on.setdefault(place[: len(DEVICE)], []).append(place)
    if all(len(streams) == 1 for streams in on.values()):
        whole = {device: busy[streams[0]] for device, streams in on.items()}
    else:
        whole = busy_by(trace, "kernels", DEVICE, scope)
    return tuple(
        _busy(streams[0], whole[device], [places[place] for place in streams], stream=False)
        for device, streams in sorted(on.items())
    )


def _busy(place: tuple[int, ...], busy: int, groups: list[_Group], *, stream: bool) -> Busy:
    span = max(group.last for group in groups) - min(group.first for group in groups)
    where = stream_of(place)
    return Busy(
        device=where.device,
        pid=where.pid,
        stream=where if stream else None,
        busy=busy,
        sum=sum(group.durations.total for group in groups),
        span=span,
        share=busy / span if span else 0.0,
    )
