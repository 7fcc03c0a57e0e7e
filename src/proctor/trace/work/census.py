"""The census: where the time on the GPUs went, by kernel or by any of seven other groupings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from proctor.trace.model import pid_of
from proctor.trace.reading.cache import cached, content_key
from proctor.trace.work.busy import DEVICE, STREAM, UNKNOWN, Key
from proctor.trace.work.census_copies import Copies, Memsets, copies_of, memsets_of
from proctor.trace.work.census_groups import Groups, groups_of
from proctor.trace.work.census_rows import Counted, Tallied, counted, counted_by_name, more_than
from proctor.trace.work.quantiles import Histogram
from proctor.trace.work.scope import WHOLE, By, Scope

if TYPE_CHECKING:
    from proctor.trace.trace import Trace

WHOLE_ROWS = 500_000
"""Up to so many launches a census is whole unless asked otherwise."""
_BY_NAME = (By.FULL, By.CATEGORY)
"""Groupings that need nothing but the names of kernels."""


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
        names: distinct demangled names in the group.
        first, last: when the first began and the last to end ended, on the trace's own clock. These and what follows
            are None in a census that is not `Census.whole`.
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
    names: int
    first: int | None
    last: int | None
    devices: tuple[int, ...] | None
    pids: tuple[int, ...] | None
    streams: tuple[Stream, ...] | None


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
        whole: whether busy time was measured and when and where each group ran; a large trace is spared that.
        devices, streams: busy time of each, as a union and as a sum; None in a census that is not whole.
        copies, memsets: what else ran, by kind. They are not in `total`.
        without_times: kernels that are in no figure, because they end before they start.
    """

    by: By
    scope: Scope
    whole: bool
    calls: int
    total: int
    lines: tuple[Line, ...]
    devices: tuple[Busy, ...] | None
    streams: tuple[Busy, ...] | None
    copies: tuple[Copies, ...]
    memsets: tuple[Memsets, ...]
    without_times: int


def census(trace: Trace, by: By | str = By.FULL, scope: Scope = WHOLE, *, whole: bool | None = None) -> Census:
    """Counts every kernel that starts within `scope`, in one pass over the rows.

    Memory grows with the number of groups and their distinct durations (in buckets where there are many), not with the
    number of rows.

    Args:
        trace: an open trace.
        by: what to group by.
        scope: which launches are counted.
        whole: also measure busy time, and when and where each group ran, which on a large trace costs more than all
            the rest. None: for up to `WHOLE_ROWS` launches. Groupings other than by name or category need it always.

    Raises:
        UserError: the trace has no kernels (or, by NVTX, no ranges), or is damaged.
    """
    by = By(by)
    if not trace.has("kernels"):
        raise trace.missing("kernels", "a census")
    if whole is None:
        whole = not more_than(trace, WHOLE_ROWS, scope)
    by_name = by in _BY_NAME and not whole
    found = counted_by_name(trace, scope) if by_name else counted(trace, scope, ranges=by is By.NVTX)
    groups = groups_of(trace, by)
    made: dict[int | str, _Group] = {}
    for row in found.rows:
        made.setdefault(groups.key(row), _Group()).add(row)
    total = sum(row.durations.total for row in found.rows)
    calls = sum(row.durations.count for row in found.rows)
    devices, streams = _busy_times(found)
    return Census(
        by=by,
        scope=scope,
        whole=devices is not None,
        calls=calls,
        total=total,
        lines=_lines(made, groups, total),
        devices=devices,
        streams=streams,
        copies=copies_of(trace, scope),
        memsets=memsets_of(trace, scope),
        without_times=found.launches - calls,
    )


def kept_census(trace: Trace, by: By | str = By.FULL, *, whole: bool | None = None) -> Census:
    """`census` of all of a trace, from the cache where the same file was asked the same before."""
    by = By(by)
    what = f"census-{by}-2" + {None: "", True: "-whole", False: "-light"}[whole]
    return cached(content_key(trace.path), what, lambda: census(trace, by, whole=whole), type=Census)


class _Group:
    """What is known of a group while rows come in."""

    def __init__(self) -> None:
        self.durations = Histogram()
        self.names: set[int] = set()
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.places: set[Key] = set()

    def add(self, row: Tallied) -> None:
        self.durations.merge(row.durations)
        self.names.add(row.name)
        if row.place is not None and row.first is not None and row.last is not None:
            self.starts.append(row.first)
            self.ends.append(row.last)
            self.places.add(row.place)


def _lines(made: dict[int | str, _Group], groups: Groups, total: int) -> tuple[Line, ...]:
    texts = groups.texts(made)
    lines = [_line(texts[key], group, total) for key, group in made.items()]
    return tuple(sorted(lines, key=lambda line: (-line.total, line.key)))


def _line(text: str, group: _Group, total: int) -> Line:
    durations = group.durations
    median, p95 = durations.median(), durations.quantile(0.95)
    streams = sorted(stream_of(place) for place in group.places)
    known = bool(streams)
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
        names=len(group.names),
        first=min(group.starts, default=None),
        last=max(group.ends, default=None),
        devices=tuple(sorted({stream.device for stream in streams})) if known else None,
        pids=tuple(sorted({stream.pid for stream in streams})) if known else None,
        streams=tuple(streams) if known else None,
    )


def stream_of(place: tuple[int, ...]) -> Stream:
    """The stream at (process, device, context, stream), as in `proctor.trace.work.busy.STREAM`."""
    process, device, context, stream = place
    return Stream(pid_of(process) if process >= 0 else -1, device, context, stream, process)


def _busy_times(found: Counted) -> tuple[tuple[Busy, ...], tuple[Busy, ...]] | tuple[None, None]:
    """Busy times of devices and of streams."""
    if found.streams is None or found.devices is None:
        return None, None
    on: dict[Key, list[Tallied]] = {}
    for row in found.rows:
        if row.place is not None:
            for key in {row.place, row.place[: len(DEVICE)]}:
                on.setdefault(key, []).append(row)
    devices, streams = (
        tuple(_busy(key, busy, on[key]) for key, busy in sorted(times.items()))
        for times in (found.devices, found.streams)
    )
    return devices, streams


def _busy(key: Key, busy: int, rows: list[Tallied]) -> Busy:
    span = max(row.last or 0 for row in rows) - min(row.first or 0 for row in rows)
    where = stream_of((*key, UNKNOWN, UNKNOWN)[: len(STREAM)])
    return Busy(
        device=where.device,
        pid=where.pid,
        stream=where if len(key) == len(STREAM) else None,
        busy=busy,
        sum=sum(row.durations.total for row in rows),
        span=span,
        share=busy / span if span else 0.0,
    )
